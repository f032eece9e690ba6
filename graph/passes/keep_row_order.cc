// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/keep_row_order.h"

#include <vector>

#include "graph/passes/dead_code.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {
namespace {

// Whether the view has axes (outer, inner, …) of a whole root that has them as
// (inner, outer, …), with rows of `width` elements.
bool IsTurned(const StridedView& view, int64_t width) {
  if (view.axes.size() < 3 || view.first != 0) return false;
  std::vector<int64_t> strides = {width, view.axes[0].size * width};
  int64_t stride = width;
  for (size_t i = 2; i < view.axes.size(); ++i) {
    if (view.axes[i].size == 0) return false;
    stride /= view.axes[i].size;
    strides.push_back(stride);
  }
  int64_t elements = 1;
  for (size_t i = 0; i < view.axes.size(); ++i) {
    const auto& [size, found] = view.axes[i];
    if (size != 1 && found != strides[i]) return false;
    elements *= size;
  }
  return stride == 1 && elements == NumElements(*view.root->shape);
}

// The layer that has the result; null if there is none.
Node* LayerOf(const Value* rows) {
  Node* layer = rows->producer;
  bool is_layer = layer && layer->Is("Gemm") && layer->Int("transA", 0) == 0 &&
                  rows->rank() == 2;
  const Value* bias = is_layer ? layer->in(2) : nullptr;
  return is_layer && (!bias || bias->rank() <= 1) ? layer : nullptr;
}

// Replaces the Transpose if it can; true if it did.
bool Visit(Graph& graph, StridedViews& views, Node& turn) {
  Value* y = turn.out(0);
  StridedView view = views.Of(y);
  if (view.root->rank() != 2 || !IsTurned(view, view.root->dim(1))) {
    return false;
  }
  Builder b(graph, y->name + ".", &turn);
  Value* rows = RowsBeforeTranspose(b, views, view.root, y->dim(0), y->dim(1));
  if (!rows) return false;
  views.Forget(y);
  ReplaceWith(graph, turn, b.Reshape(rows, *y->shape));
  return true;
}

}  // namespace

Value* RowsBeforeTranspose(Builder& b, StridedViews& views, const Value* rows,
                           int64_t batch, int64_t time) {
  Node* layer = LayerOf(rows);
  if (!layer || !IsReadOnce(b.graph(), rows)) return nullptr;
  Value* x = layer->in(0);
  const Node* join = x->producer;
  if (!join || !join->Is("Reshape")) return nullptr;
  StridedView view = views.Of(join->in(0));
  if (!IsTurned(view, x->dim(1)) || view.axes[0].size != time ||
      view.axes[1].size != batch) {
    return nullptr;
  }
  std::vector<Value*> in = layer->inputs();
  in[0] = b.Reshape(view.root, *x->shape);
  b.set_metadata(layer->metadata);
  Value* y = b.Op("Gemm", in, layer->attributes);
  y->producer->name = layer->name;
  return y;
}

void KeepRowOrder(Graph& graph) {
  std::vector<Node*> turns;
  for (Node& node : graph.nodes()) {
    if (node.Is("Transpose")) turns.push_back(&node);
  }
  bool changed = false;
  StridedViews views;
  for (Node* turn : turns) changed |= Visit(graph, views, *turn);
  if (changed) RemoveDeadCode(graph);
}

}  // namespace onnx_fp8
