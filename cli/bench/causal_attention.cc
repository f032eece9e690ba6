// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/causal_attention.h"

#include <cmath>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

NodeOperand RowsOf(const CausalSizes& s, int64_t heads) {
  return {.shape = {s.batch, s.sequence, heads * s.head_size}};
}

NodeCase CaseOf(const CausalSizes& s, DType dtype, const std::string& op,
                std::vector<NodeOperand> operands, size_t results) {
  return {.group = "attention",
          .what = Concat("causal, T ", s.sequence, ", D ", s.head_size,
                         ", batch ", s.batch),
          .op = op,
          .domain = kDomain,
          .operands = std::move(operands),
          .results = results,
          .attributes = CausalAttributes(s, dtype)};
}

}  // namespace

DType FloatNamed(const std::string& name) {
  return name == "bf16" ? DType::kBFloat16 : DType::kFloat;
}

Attributes CausalAttributes(const CausalSizes& s, DType dtype) {
  double scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  return {{"heads", s.heads},
          {"kv_heads", s.kv_heads},
          {"scale", static_cast<float>(scale)},
          {"causal", int64_t{1}},
          {"round_to", static_cast<int64_t>(dtype)}};
}

NodeCase CausalAttention(const CausalSizes& s, DType dtype) {
  NodeOperand q = RowsOf(s, s.heads), k = RowsOf(s, s.kv_heads);
  return CaseOf(s, dtype, "Attention", {q, k, k}, 2);
}

NodeCase CausalAttentionGrad(const CausalSizes& s, DType dtype) {
  NodeOperand q = RowsOf(s, s.heads), k = RowsOf(s, s.kv_heads);
  NodeOperand lse = {.shape = {s.batch, s.heads, s.sequence},
                     .fill = NodeOperand::kValue,
                     .value = std::log(static_cast<double>(s.sequence))};
  return CaseOf(s, dtype, "AttentionGrad", {q, q, k, k, q, lse}, 3);
}

}  // namespace onnx_fp8
