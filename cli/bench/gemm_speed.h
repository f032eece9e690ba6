// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "cli/bench/sizes.h"
#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

struct GemmSpeed {
  double best = 0, median = 0;  // operations per second
  int64_t runs = 0;
};

// The product alone, without a node's allocations: the CPU's GEMM, of operands
// of that dtype. The result is bfloat16 for operands of bfloat16, else float.
// `layout`: "NT" means that B is stored transposed.
GemmSpeed MeasureGemm(const ProductSize& size, const std::string& layout,
                      DType dtype, double seconds);

}  // namespace onnx_fp8
