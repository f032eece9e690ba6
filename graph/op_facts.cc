// SPDX-License-Identifier: Apache-2.0
#include "graph/op_facts.h"

#include <map>
#include <string_view>

#include "graph/schemas.h"

namespace onnx_fp8 {
namespace {

const std::map<std::string_view, OpFacts>& OnnxOps() {
  constexpr OpKind kOther = OpKind::kOther;
  constexpr OpKind kNorm = OpKind::kNorm;
  static const std::map<std::string_view, OpFacts> facts = {
      {"AveragePool", {kOther, WindowFlops}},
      {"BatchNormalization", {kNorm}},
      {"Conv", {kOther, ConvFlops}},
      {"ConvInteger", {kOther, ConvFlops}},
      {"ConvTranspose", {kOther, ConvTransposeFlops}},
      {"Einsum", {kOther, EinsumFlops}},
      {"GRU", {kOther, RecurrentFlops}},
      {"Gemm", {OpKind::kProduct, ProductFlops}},
      {"GroupNormalization", {kNorm}},
      {"InstanceNormalization", {kNorm}},
      {"LRN", {kOther, WindowFlops}},
      {"LSTM", {kOther, RecurrentFlops}},
      {"LayerNormalization", {kNorm}},
      {"LpPool", {kOther, WindowFlops}},
      {"MatMul", {OpKind::kProduct, ProductFlops}},
      {"MatMulInteger", {kOther, ProductFlops}},
      {"MaxPool", {kOther, WindowFlops}},
      {"QLinearConv", {kOther, QuantizedConvFlops}},
      {"QLinearMatMul", {kOther, ProductFlops}},
      {"RMSNormalization", {kNorm}},
      {"RNN", {kOther, RecurrentFlops}},
  };
  return facts;
}

}  // namespace

const OpFacts& FactsOf(const Node& node) {
  static const OpFacts none;
  if (node.domain == kDomain) {
    const OpDefinition* op = FindOp(node.op);
    return op ? op->facts : none;
  }
  if (!node.domain.empty()) return none;
  auto row = OnnxOps().find(node.op);
  return row == OnnxOps().end() ? none : row->second;
}

}  // namespace onnx_fp8
