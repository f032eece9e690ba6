// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/rewrite_products.h"

#include "base/check.h"
#include "graph/fp8/fp8_rewrite.h"
#include "graph/infer_shapes.h"
#include "graph/passes/trained_parameters.h"

namespace onnx_fp8 {

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
