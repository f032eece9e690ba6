// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// ml_dtypes' tables of one 8-bit format; see generate_float8.py.
struct Float8Table {
  std::vector<float> values;     // of the 256 codes
  std::vector<uint8_t> of_bf16;  // code of each of the 65,536 bf16 values
  std::vector<float> near;       // every midpoint and both its neighbors
  std::vector<uint8_t> of_near;
};

// REQUIRES: kE4M3 or kE5M2. Errors: the file is missing or too short.
Float8Table ReadFloat8Table(DType format);

// True if the code is a NaN of the format.
bool IsNaNCode(DType format, uint8_t code);

}  // namespace onnx_fp8
