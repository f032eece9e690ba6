// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_norm.h"

#include <vector>

#include "graph/builder.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {
namespace {

bool IsMeanOfLastAxis(const Node& node) {
  if (!node.Is("ReduceMean") || node.Int("keepdims", 1) == 0) return false;
  const Value* axes = node.in(1);
  if (!axes || !axes->is_constant() || axes->data.size() != 1) return false;
  int64_t axis = ToInts(axes->data)[0], rank = node.in(0)->rank();
  return axis == -1 || axis == rank - 1;
}

// The node that multiplies x with 1 / root: x · Reciprocal(root), x · (1 /
// root) or x / root. Null if there is none, or if others read the root too.
Node* Normalized(const Graph& graph, Value* root, const Value* x) {
  if (!IsReadOnce(graph, root)) return nullptr;
  Node* node = root->uses[0];
  if (node->Is("Div") && node->in(1) == root && node->in(0) == x) return node;
  bool inverse =
      node->Is("Reciprocal") ||
      (node->Is("Div") && node->in(1) == root && IsNumber(node->in(0), 1));
  if (!inverse) return nullptr;
  Node* product = OnlyReader(graph, node->out(0), "Mul");
  return product && OtherOperand(*product, node->out(0)) == x ? product
                                                              : nullptr;
}

void Visit(Graph& graph, Node& mean) {
  Value* x = SquareOf(mean.in(0));
  if (!x || !IsReadOnce(graph, mean.in(0))) return;
  Node* shifted = OnlyReader(graph, mean.out(0), "Add");
  if (!shifted) return;
  auto epsilon = NumberIn(OtherOperand(*shifted, mean.out(0)));
  Node* root = OnlyReader(graph, shifted->out(0), "Sqrt");
  if (!epsilon || !root) return;
  Node* h = Normalized(graph, root->out(0), x);
  Node* last = h ? OnlyReader(graph, h->out(0), "Mul") : nullptr;
  if (!last) return;
  Value* weight = OtherOperand(*last, h->out(0));
  // Constants of more axes give their axes to the result.
  bool fits = weight->dtype == x->dtype && weight->concrete() &&
              *weight->shape == Shape{x->dim(-1)} &&
              last->out(0)->shape == x->shape;
  if (!fits) return;
  Builder b(graph, last->out(0)->name + ".", last);
  b.set_metadata(last->metadata);
  Value* y = b.Ours(
      "RMSNorm", {x, weight},
      {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(*epsilon)}});
  ReplaceWith(graph, *last, y);
}

// Fuses norm(a + b) if other nodes read the sum too: the residual stream.
void FuseResidual(Graph& graph, Node& norm) {
  bool layer = norm.Is("LayerNormalization");
  Value *x = norm.in(0), *y = norm.out(0);
  Node* sum = x->producer;
  if (!sum || !sum->Is("Add") || x->uses.size() < 2 || !x->concrete() ||
      x->dtype != DType::kFloat) {
    return;
  }
  for (size_t i = 1; i < norm.outputs().size(); ++i) {
    if (norm.out(i)) return;
  }
  if (norm.inputs().size() != (layer ? 3 : 2) || norm.Int("stash_type", 1) != 1)
    return;
  std::vector<Value*> in = {sum->in(0), sum->in(1)};
  int64_t axis = norm.Int("axis", -1);
  if (axis != -1 && axis != x->rank() - 1) return;
  for (size_t i = 1; i < norm.inputs().size(); ++i) {
    Value* value = norm.in(i);
    if (!value || value->producer || value->shape != Shape{x->dim(-1)}) return;
    in.push_back(value);
  }
  if (in[0]->shape != x->shape || in[1]->shape != x->shape) return;
  Builder b(graph, y->name + ".", sum);
  b.set_metadata(norm.metadata);
  auto made =
      b.Ops(layer ? "AddLayerNorm" : "AddRMSNorm", in, layer ? 4 : 2,
            {{"axis", int64_t{-1}}, {"epsilon", norm.Float("epsilon", 1e-5f)}},
            kDomain);
  made[0]->producer->name = norm.name;
  ReplaceWith(graph, norm, made[1]);
  ReplaceWith(graph, *sum, made[0]);
}

}  // namespace

void FuseNorms(Graph& graph) {
  std::vector<Node*> means, norms;
  for (Node& node : graph.nodes()) {
    if (IsMeanOfLastAxis(node)) means.push_back(&node);
  }
  for (Node* node : means) Visit(graph, *node);
  if (!means.empty()) RemoveDeadCode(graph);
  for (Node& node : graph.nodes()) {
    bool rms = node.op == "RMSNorm" && node.domain == kDomain;
    if (rms || node.Is("LayerNormalization")) norms.push_back(&node);
  }
  for (Node* node : norms) FuseResidual(graph, *node);
}

}  // namespace onnx_fp8
