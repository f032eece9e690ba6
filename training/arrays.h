// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The named arrays of a .npz or .safetensors file; the one array of a .npy
// file, named after the file ("x.npy" → "x"). Memory-mapped where the format
// allows: pages are read on first use, and writing to a tensor does not change
// the file. Errors: another extension; whatever is wrong with the file, naming
// file and array.
TensorMap ReadArrays(const std::string& path);

// `bytes` at `data` as a tensor that `owner` keeps alive: a view if `data` is
// aligned for the dtype, else a copy. Errors, prefixed with [where]: another
// number of bytes than dtype and shape need, a bool that is neither 0 nor 1.
Tensor ArrayFromBytes(DType dtype, const Shape& shape,
                      const std::shared_ptr<void>& owner, void* data,
                      size_t bytes, const std::string& where);

}  // namespace onnx_fp8
