// SPDX-License-Identifier: Apache-2.0
//
// Ops that join another op, the producer, with quantizers of its results.
// With scales that are known before the op runs, as QuantizeWith's:
//   Operands: the producer's, then one scale_in for each quantized result.
//   Results:  the producer's, then q, q_scale, amax and q_transposed for each
//             quantized result. Padded, q is a matrix with the zeros of
//             QuantizeWithPadded.
// With a scale of its own for each row of the last axis, as QuantizeBlock's:
//   Operands: the producer's.
//   Results:  the producer's, then q, q_scale and amax.
// The attribute `round_to` is a dtype. Codes are made from the result rounded
// to it; 1 (float): not rounded. The result itself is rounded only if it is
// kept in 16 bits (Value::narrow).
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/schemas.h"

namespace onnx_fp8 {

struct FusedQuantizer {
  std::string producer, domain;
  std::string op;  // of our domain: the producer's with "Quantize"
  std::vector<std::string> operands, results;  // of the producer
  std::vector<size_t> quantized;               // results
  std::vector<AttributeDefinition> attributes = {};
  // The producer in ops of kBodyOpset, if it is newer: from x to y.
  std::string text = "";
  std::string approximate = "";  // the value of this attribute; "": none
  bool by_rows = false;          // rows have scales of their own
  bool padded = false;           // quantizers are QuantizeWithPadded

  // Operand and first result of quantizer i.
  size_t ScaleIn(size_t i) const { return operands.size() + i; }
  // The number of operands of the op.
  size_t Operands() const { return ScaleIn(by_rows ? 0 : quantized.size()); }
  size_t Codes(size_t i) const { return results.size() + 4 * i; }
};

std::span<const FusedQuantizer> FusedQuantizers();

// The row of an op of our domain; null if it is none of these.
const FusedQuantizer* FindFusedQuantizer(std::string_view op);

}  // namespace onnx_fp8
