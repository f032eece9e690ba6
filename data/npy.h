// SPDX-License-Identifier: Apache-2.0
//
// NumPy's formats: .npy (one array, versions 1.0 to 3.0) and .npz (a ZIP file
// of them). Format: numpy/lib/format.py, NEP 1.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/zip.h"
#include "onnx_fp8/budgets.h"
#include "onnx_fp8/dtype.h"
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

// NumPy's code of a dtype, which follows the character of the byte order.
struct NumpyType {
  std::string_view code;
  DType dtype;
};

inline constexpr NumpyType kNumpyTypes[] = {
    {"f2", DType::kFloat16}, {"f4", DType::kFloat},  {"f8", DType::kDouble},
    {"i1", DType::kInt8},    {"i2", DType::kInt16},  {"i4", DType::kInt32},
    {"i8", DType::kInt64},   {"u1", DType::kUInt8},  {"u2", DType::kUInt16},
    {"u4", DType::kUInt32},  {"u8", DType::kUInt64}, {"b1", DType::kBool},
};

}  // namespace onnx_fp8
