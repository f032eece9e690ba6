// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/slice_before_product.h"

#include <algorithm>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {
namespace {

bool HasShape(const Value* value) { return value && value->concrete(); }

// The layer whose rows the Slice cuts; null if it can not move.
Node* LayerBefore(const Graph& graph, const Node& slice) {
  Value* rows = slice.in(0);
  const Value* cut = slice.out(0);
  if (!HasShape(rows) || !HasShape(cut) || rows->rank() < 2 ||
      rows->dim(-1) != cut->dim(-1) || *rows->shape == *cut->shape ||
      NumElements(*cut->shape) == 0 || !IsReadOnce(graph, rows)) {
    return nullptr;
  }
  // A row's elements keep their order. A negative step may turn the last axis
  // around and keep its size.
  for (size_t i = 1; i < slice.inputs().size(); ++i) {
    if (slice.in(i) && !slice.in(i)->is_constant()) return nullptr;
  }
  if (const Value* steps = slice.in(4)) {
    for (int64_t step : ToInts(steps->data)) {
      if (step < 0) return nullptr;
    }
  }
  Node* layer = rows->producer;
  if (layer && layer->Is("Reshape") && IsReadOnce(graph, layer->in(0))) {
    layer = layer->in(0)->producer;
  }
  if (!layer || !layer->Is("Gemm") || layer->Int("transA", 0) != 0) {
    return nullptr;
  }
  const Value *x = layer->in(0), *y = layer->out(0), *bias = layer->in(2);
  bool one_bias = !bias || (HasShape(bias) && bias->rank() <= 1);
  // Rows of the product are rows of the sliced value.
  bool same_rows = HasShape(x) && x->rank() == 2 && x->dim(1) > 0 &&
                   HasShape(y) && y->dim(1) == rows->dim(-1);
  return one_bias && same_rows ? layer : nullptr;
}

// The Slice's operands for rows of another width: without the last axis, of
// which it takes everything.
std::vector<Value*> OperandsForRows(Builder& b, const Node& slice) {
  std::vector<Value*> in = slice.inputs();
  const int64_t rank = slice.in(0)->rank();
  std::vector<int64_t> starts = ToInts(in[1]->data), axes;
  if (slice.in(3)) {
    axes = ToInts(in[3]->data);
  } else {
    for (size_t i = 0; i < starts.size(); ++i) {
      axes.push_back(static_cast<int64_t>(i));
    }
  }
  auto is_last = [&](int64_t axis) { return axis == -1 || axis == rank - 1; };
  if (std::ranges::none_of(axes, is_last)) return in;
  in.resize(std::max<size_t>(in.size(), 4));
  for (size_t i = 1; i < in.size(); ++i) {
    if (i > 3 && !in[i]) continue;
    std::vector<int64_t> all = i == 3 ? axes : ToInts(in[i]->data), kept;
    for (size_t j = 0; j < axes.size(); ++j) {
      if (!is_last(axes[j])) kept.push_back(all[j]);
    }
    in[i] = b.Ints(kept);
  }
  return in;
}

void MoveBefore(Graph& graph, Node& slice, Node& layer) {
  Builder b(graph, slice.out(0)->name + ".", &slice);
  Value* x = layer.in(0);
  Shape shape = *slice.in(0)->shape;
  shape.back() = x->dim(1);
  std::vector<Value*> in = OperandsForRows(b, slice);
  // All readers of a Reshape of x read x itself where the shapes agree.
  Node* joined = x->producer;
  bool same = joined && joined->Is("Reshape") && HasShape(joined->in(0)) &&
              *joined->in(0)->shape == shape;
  in[0] = same ? joined->in(0) : b.Reshape(x, shape);
  b.set_metadata(slice.metadata);
  Value* kept = b.Op("Slice", in, slice.attributes);
  b.set_metadata(layer.metadata);
  int64_t rows = NumElements(*kept->shape) / x->dim(1);
  std::vector<Value*> operands = layer.inputs();
  operands[0] = b.Reshape(kept, {rows, x->dim(1)});
  Value* y = b.Op("Gemm", operands, layer.attributes);
  y->producer->name = layer.name;
  Node* reshape = slice.in(0)->producer;
  ReplaceWith(graph, slice, b.Reshape(y, *slice.out(0)->shape));
  if (reshape != &layer) graph.RemoveNode(reshape);
  graph.RemoveNode(&layer);
}

}  // namespace

void SliceBeforeProduct(Graph& graph) {
  // Nodes are in topological order: a Slice behind a Slice finds the product
  // that the first one leaves.
  std::vector<Node*> slices;
  for (Node& node : graph.nodes()) {
    if (node.Is("Slice")) slices.push_back(&node);
  }
  for (Node* slice : slices) {
    if (Node* layer = LayerBefore(graph, *slice)) {
      MoveBefore(graph, *slice, *layer);
    }
  }
}

}  // namespace onnx_fp8
