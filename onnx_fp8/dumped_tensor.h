// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// An operand or the output of a linear layer's product, as a step has computed
// it.
struct DumpedTensor {
  std::string fqn;      // of the layer's weight
  std::string gemm;     // "forward", "dgrad" or "wgrad"
  std::string operand;  // one of kDumpedOperands
  int64_t use = 1;      // counts the layer's products of this role, in order
  std::string recipe;   // of a product in FP8; "": it is not in FP8
  // The blocks of the codes that have one scale each, as QuantizeBlock's; 0:
  // the whole axis.
  int64_t block_rows = 0, block_columns = 0;
  // The tensor before its cast, or the output. Undefined: the codes of a frozen
  // weight live from step to step, so no step casts it.
  Tensor value;
  Tensor codes, scale;  // undefined: it has none

  bool has_codes() const { return codes.defined(); }
};

// Codes times scales, as floats. REQUIRES: has_codes(); host memory. Errors:
// the scales do not fit the blocks.
Tensor Decoded(const DumpedTensor& dumped);

// The tensors of a micro-batch, in the order of its products.
using Dump = std::vector<DumpedTensor>;

}  // namespace onnx_fp8
