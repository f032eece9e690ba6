// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/rewrite_products.h"

#include <map>
#include <string>

#include "base/check.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/infer_shapes.h"
#include "graph/passes/trained_parameters.h"

namespace onnx_fp8 {
namespace {

// The first matrix among the node's constant operands.
std::string WeightOf(const Node& node) {
  for (const Value* value : node.inputs()) {
    bool weight = value && value->is_initializer() && value->data.rank() == 2;
    if (weight) return value->name;
  }
  return "";
}

}  // namespace

void CopyNotes(const Graph& file, Graph& graph) {
  std::map<std::string, const Node*> by_name, by_weight;
  for (const Node& node : file.nodes()) {
    by_name.emplace(node.name, &node);
    by_weight.emplace(WeightOf(node), &node);
  }
  by_name.erase("");
  by_weight.erase("");
  for (Node& node : graph.nodes()) {
    if (!node.Is("MatMul") && !node.Is("Gemm")) continue;
    auto found = by_name.find(node.name);
    if (found == by_name.end()) {
      found = by_weight.find(WeightOf(node));
      if (found == by_weight.end()) continue;
    }
    node.metadata = found->second->metadata;
  }
}

std::vector<GemmDecision> RewriteProducts(Graph& graph, Fp8Spec spec) {
  MarkParameters(graph);
  for (Node& node : graph.nodes()) {
    try {
      InferNode(node, graph.opset);
    } catch (const Error&) {
      // Shapes only refine the decision.
    }
  }
  spec.names = NameParameters(graph);
  auto decisions = DecideGemms(ClassifyGemms(graph, nullptr, {}), spec);
  Fp8Rewrite(graph, spec, nullptr, {});
  for (Value* value : graph.Initializers()) value->role = Role::kNone;
  return decisions;
}

}  // namespace onnx_fp8
