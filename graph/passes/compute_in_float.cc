// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/compute_in_float.h"

#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

// Attributes that hold the number of a type, in Cast, generators and Attention.
bool IsType(std::string_view key) {
  return key == "to" || key == "dtype" || key == "softmax_precision";
}

}  // namespace

void ComputeInFloat(Graph& graph) {
  for (Value* value : graph.Values()) {
    if (!IsHalf(value->dtype)) continue;
    value->dtype = DType::kFloat;
    if (value->data.defined()) {
      value->data = ConvertTo(value->data, DType::kFloat);
    }
  }
  for (Node& node : graph.nodes()) {
    // RoundTo's attribute names the numbers that floats are rounded to. The
    // result is a float.
    if (FactsOf(node).kind == OpKind::kRound) continue;
    for (auto& [key, attribute] : node.attributes) {
      if (auto* inner = std::get_if<std::shared_ptr<Graph>>(&attribute)) {
        ComputeInFloat(**inner);
      } else if (auto* tensor = std::get_if<Tensor>(&attribute)) {
        if (IsHalf(tensor->dtype())) {
          *tensor = ConvertTo(*tensor, DType::kFloat);
        }
      } else if (auto* type = std::get_if<int64_t>(&attribute)) {
        if (IsType(key) && IsHalf(static_cast<DType>(*type))) {
          *type = static_cast<int64_t>(DType::kFloat);
        }
      }
    }
  }
}

}  // namespace onnx_fp8
