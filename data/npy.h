// SPDX-License-Identifier: Apache-2.0
//
// NumPy's formats: .npy (one array, versions 1.0 to 3.0) and .npz (a ZIP file
// of them). Format: numpy/lib/format.py, NEP 1.
#pragma once

#include <string>
#include <vector>

#include "data/zip.h"
#include "onnx_fp8/budgets.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// The array in C order. A view of the mapped file, or a copy if the file holds
// Fortran order, big-endian or unaligned elements. dtypes: float16, 32, 64,
// signed and unsigned integers, bool. Errors: any other dtype, a damaged
// header, fewer or more bytes than the shape needs.
Tensor ReadNpy(const std::string& path);

// The arrays of an .npz by name (without ".npy"), each read on demand: stored
// arrays are views of the mapped file, deflated ones copies.
class NpzFile {
 public:
  // Errors: ZipArchive's; a member that is no .npy.
  explicit NpzFile(const std::string& path, const Budgets& budgets = {});

  // In the archive's order.
  const std::vector<std::string>& names() const { return names_; }

  // REQUIRES: one of names(). Errors: as ReadNpy's, naming file and array; all
  // calls together inflate more bytes than the budget `arrays`.
  Tensor Read(const std::string& name);

 private:
  std::string path_;
  ZipArchive archive_;
  std::vector<std::string> names_;
  Spending spending_;
};

// Reads all arrays. Errors: NpzFile's.
TensorMap ReadNpz(const std::string& path, const Budgets& budgets = {});

}  // namespace onnx_fp8
