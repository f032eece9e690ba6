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

// The names of a weight, and of the operand of a product that is the weight or
// its transpose.
struct Weight {
  std::string name, operand;
};

// The first matrix among the node's constant operands; no names if there is
// none.
Weight WeightOf(const Node& node) {
  for (const Value* operand : node.inputs()) {
    const Value* weight = operand;
    // The file may not say shapes, which PeelTranspose asks for.
    while (weight && weight->producer && weight->producer->Is("Transpose")) {
      weight = weight->producer->in(0);
    }
    if (weight && weight->is_initializer() && weight->data.rank() == 2) {
      return {weight->name, operand->name};
    }
  }
  return {};
}

// The file's node for each product of the graph: that of the same name, or else
// that which reads the same operand.
std::map<Node*, const Node*> FindInFile(const Graph& file, Graph& graph) {
  std::map<std::string, const Node*> by_name, by_operand;
  for (const Node& node : file.nodes()) {
    by_name.emplace(node.name, &node);
    by_operand.emplace(WeightOf(node).operand, &node);
  }
  by_name.erase("");
  by_operand.erase("");
  std::map<Node*, const Node*> found;
  for (Node& node : graph.nodes()) {
    if (!node.Is("MatMul") && !node.Is("Gemm")) continue;
    auto it = by_name.find(node.name);
    if (it == by_name.end()) {
      it = by_operand.find(WeightOf(node).operand);
      if (it == by_operand.end()) continue;
    }
    found[&node] = it->second;
  }
  return found;
}

// A session folds the transpose of a weight into a constant with a name of its
// own. Scales for products of the weight also serve those of the constant.
void AddScalesOf(const std::string& weight, const std::string& constant,
                 StaticScales* scales) {
  if (weight == constant || weight.empty() || constant.empty()) return;
  const std::map<std::string, float> known = scales->by_key;
  std::string prefix = weight + "/";
  for (auto it = known.lower_bound(prefix);
       it != known.end() && it->first.starts_with(prefix); ++it) {
    scales->by_key[constant + it->first.substr(weight.size())] = it->second;
  }
}

}  // namespace

std::vector<GemmDecision> RewriteProducts(Graph& graph, Fp8Spec spec,
                                          const Graph* file) {
  if (file) {
    graph.file = file->file;
    for (auto [node, original] : FindInFile(*file, graph)) {
      node->metadata = original->metadata;
      AddScalesOf(WeightOf(*original).name, WeightOf(*node).name, &spec.scales);
    }
  }
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
