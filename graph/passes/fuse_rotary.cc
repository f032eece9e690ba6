// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_rotary.h"

#include <optional>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {
namespace {

std::optional<int64_t> IntIn(const Value* value) {
  if (!value || !value->is_constant() || value->data.size() != 1) return {};
  return ToInts(value->data)[0];
}

// Returns x if `part` is the first (`half` 0) or second half of x's last axis;
// else null.
Value* WholeOf(const Value* part, int64_t half) {
  const Node* node = part->producer;
  if (!node || !node->in(0)->concrete() || node->in(0)->rank() < 1) {
    return nullptr;
  }
  Value* x = node->in(0);
  int64_t last = x->rank() - 1, size = x->dim(last);
  if (!part->concrete() || 2 * part->dim(-1) != size) return nullptr;
  if (node->Is("Split")) {
    int64_t axis = node->Int("axis", 0);
    bool halves = node->outputs().size() == 2 && (axis == last || axis == -1);
    return halves && part == node->out(static_cast<size_t>(half)) ? x : nullptr;
  }
  if (!node->Is("Slice")) return nullptr;
  auto start = IntIn(node->in(1)), axis = IntIn(node->in(3));
  auto step = node->in(4) ? IntIn(node->in(4)) : 1;
  if (!start || !axis || step != 1) return nullptr;
  int64_t from = *start < 0 ? *start + size : *start;
  bool fits = (*axis == last || *axis == -1) && from == half * size / 2;
  return fits ? x : nullptr;
}

// The x of (-x2, x1).
Value* Turned(const Value* value) {
  const Node* join = value->producer;
  if (!join || !join->Is("Concat") || join->inputs().size() != 2) {
    return nullptr;
  }
  int64_t axis = join->Int("axis", 0);
  if (axis != -1 && axis != value->rank() - 1) return nullptr;
  const Node* minus = join->in(0)->producer;
  if (!minus || !minus->Is("Neg")) return nullptr;
  Value* x = WholeOf(minus->in(0), 1);
  return x && WholeOf(join->in(1), 0) == x ? x : nullptr;
}

// The middle two of four axes: one is for heads, the other for positions.
struct Axes {
  int64_t heads, positions;
};

// The axes of t (cos or sin) if it is the same for all heads of x; else none.
std::optional<Axes> AxesOf(const Value* t, const Value* x) {
  Shape four = *t->shape;
  if (four.size() > 4) return {};
  four.insert(four.begin(), 4 - four.size(), 1);
  if (four[3] != x->dim(3) || (four[0] != 1 && four[0] != x->dim(0))) return {};
  if (four[1] == 1 && four[2] == x->dim(2)) return Axes{1, 2};
  if (four[2] == 1 && four[1] == x->dim(1)) return Axes{2, 1};
  return {};
}

// t as (N,T,D).
Value* PerPosition(Builder& b, Value* t, const Value* x, const Axes& axes) {
  int64_t batches = t->rank() == 4 ? t->dim(0) : 1;
  return b.Reshape(t, {batches, x->dim(axes.positions), x->dim(3)});
}

// `sum` = x cos + Turned(x) sin, with the operands in any order: `straight` is
// x cos, `across` is Turned(x) sin.
void Visit(Graph& graph, const FixedValues& fixed, Node& sum) {
  for (size_t i : {0, 1}) {
    const Node *across = sum.in(i)->producer,
               *straight = sum.in(1 - i)->producer;
    if (!across || !straight || !across->Is("Mul") || !straight->Is("Mul") ||
        !IsReadOnce(graph, sum.in(0)) || !IsReadOnce(graph, sum.in(1))) {
      return;
    }
    for (size_t j : {0, 1}) {
      Value* x = Turned(across->in(j));
      if (!x || x->rank() != 4 || sum.out(0)->shape != x->shape ||
          NumElements(*x->shape) == 0 ||
          (straight->in(0) != x && straight->in(1) != x)) {
        continue;
      }
      Value *sin = across->in(1 - j), *cos = OtherOperand(*straight, x);
      auto axes = AxesOf(cos, x);
      if (!axes || !fixed.Has(cos) || !fixed.Has(sin) ||
          NumElements(*cos->shape) != NumElements(*sin->shape)) {
        continue;
      }
      auto sin_axes = AxesOf(sin, x);
      if (!sin_axes || sin_axes->heads != axes->heads) continue;
      Builder b(graph, sum.out(0)->name + ".", &sum);
      b.set_metadata(sum.metadata);
      bool turned = axes->heads == 1;
      int64_t batch = x->dim(0), rows = x->dim(axes->positions),
              heads = x->dim(axes->heads), depth = x->dim(3);
      Value* flat =
          turned ? HeadsLast(b, x) : b.Reshape(x, {batch, rows, heads * depth});
      Value* y = b.Ours(
          "Rotary",
          {flat, PerPosition(b, cos, x, *axes), PerPosition(b, sin, x, *axes)},
          {{"heads", heads}});
      y = b.Reshape(y, {batch, rows, heads, depth});
      if (turned) y = b.Transpose(y, {0, 2, 1, 3});
      return ReplaceWith(graph, sum, y);
    }
  }
}

}  // namespace

void FuseRotary(Graph& graph) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (node.Is("Add") && node.out(0)->rank() == 4) found.push_back(&node);
  }
  if (found.empty()) return;
  const FixedValues fixed(graph);
  for (Node* node : found) Visit(graph, fixed, *node);
  RemoveDeadCode(graph);
}

}  // namespace onnx_fp8
