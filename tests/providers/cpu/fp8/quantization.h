// SPDX-License-Identifier: Apache-2.0
//
// Formats and blocks to which the tests of the FP8 ops quantize.
#pragma once

#include <cstdint>

#include "graph/graph.h"
#include "onnx_fp8/float8.h"

namespace onnx_fp8 {

// Attributes of QuantizeTensor and QuantizeWith.
inline Attributes QuantizeTo(DType format) {
  return {{"to", static_cast<int64_t>(format)}, {"q_max", Float8Max(format)}};
}

// Size of the blocks that share a scale; 0: the whole axis.
struct Blocks {
  int64_t rows, columns;
};

}  // namespace onnx_fp8
