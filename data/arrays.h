// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/npy.h"
#include "onnx_fp8/budgets.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The named arrays of a .npz or .safetensors file, or the one array of a .npy
// file, named after the file ("x.npy" → "x"). Memory-mapped if the format
// allows it: pages are read on first use, and writing to a tensor does not
// change the file. Arrays of a .npz that nobody asks for are not read.
class ArrayFile {
 public:
  // Errors: another extension; a damaged file; the message names it.
  explicit ArrayFile(const std::string& path, const Budgets& budgets = {});
  // The same for arrays that are in memory already.
  explicit ArrayFile(TensorMap arrays);

  // Sorted.
  const std::vector<std::string>& names() const { return names_; }

  // REQUIRES: one of names(). Errors: a damaged array, naming file and array;
  // NpzFile's of the budget `arrays`.
  Tensor Read(const std::string& name);

 private:
  std::optional<NpzFile> npz_;
  TensorMap arrays_;  // of all but .npz
  std::vector<std::string> names_;
};

// All arrays of a file. Errors: ArrayFile's.
TensorMap ReadArrays(const std::string& path, const Budgets& budgets = {});

// Makes `bytes` at `data` a tensor that `owner` keeps alive: a view if `data`
// is aligned for the dtype, else a copy. Errors, prefixed with [where]: another
// number of bytes than dtype and shape need, a bool that is neither 0 nor 1.
Tensor ArrayFromBytes(DType dtype, const Shape& shape,
                      const std::shared_ptr<void>& owner, void* data,
                      size_t bytes, const std::string& where);

}  // namespace onnx_fp8
