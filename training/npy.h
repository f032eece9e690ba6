// SPDX-License-Identifier: Apache-2.0
//
// NumPy's formats: .npy (one array, versions 1.0 to 3.0) and .npz (a ZIP file
// of them). Format: numpy/lib/format.py, NEP 1.
#pragma once

#include <string>

#include "training/arrays.h"

namespace onnx_fp8 {

// The array in C order. A view of the mapped file, or a copy where the file
// holds Fortran order, big-endian or unaligned elements. dtypes: float16, 32,
// 64, signed and unsigned integers, bool. Errors: any other dtype, a damaged
// header, fewer or more bytes than the shape needs.
Tensor ReadNpy(const std::string& path);

// All arrays by name (without ".npy"); deflated ones are copies. Errors: as
// above and what ZipArchive finds, naming file and array.
TensorMap ReadNpz(const std::string& path);

}  // namespace onnx_fp8
