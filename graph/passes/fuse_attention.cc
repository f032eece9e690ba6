// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/attention_masks.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/keep_row_order.h"
#include "graph/passes/pattern.h"
#include "graph/passes/strided_view.h"

namespace onnx_fp8 {
namespace {

// The operand of AttentionPacked (graph/schemas/attention.cc): `root` as
// `shape`, and the op's attribute `perm`.
struct PackedHeads {
  Value* root;
  Shape shape;
  std::vector<int64_t> perm;
};

// Returns whether x (B,H,T,D) begins at element `first`, has batches `batch`
// elements apart and rows `row` elements apart, and has its heads side by side.
bool LiesAt(const StridedView& x, int64_t first, int64_t batch, int64_t row) {
  const int64_t strides[] = {batch, x.axes[3].size, row, 1};
  for (size_t i = 0; i < 4; ++i) {
    if (x.axes[i].size > 1 && x.axes[i].stride != strides[i]) return false;
  }
  return x.first == first;
}

// q (B,H,T,D), k (B,G,T,D) and v (B,G,T,D) as the parts of one value that holds
// nothing else, as a linear layer for all three leaves them; nullopt: they are
// no such parts. REQUIRES: concrete shapes of four axes.
std::optional<PackedHeads> FindPackedHeads(StridedViews& views, Value* q,
                                           Value* k, Value* v) {
  StridedView a = views.Of(q), b = views.Of(k), c = views.Of(v);
  if (a.root != b.root || a.root != c.root) return std::nullopt;
  int64_t batch = q->dim(0), heads = q->dim(1), time = q->dim(2),
          depth = q->dim(3), groups = k->dim(1);
  const Shape key = {batch, groups, time, depth};
  int64_t width = (heads + 2 * groups) * depth;
  if (*k->shape != key || *v->shape != key ||
      NumElements(*a.root->shape) != batch * time * width) {
    return std::nullopt;
  }
  auto fits = [&](int64_t batch_stride, int64_t row_stride) {
    return LiesAt(a, 0, batch_stride, row_stride) &&
           LiesAt(b, heads * depth, batch_stride, row_stride) &&
           LiesAt(c, (heads + groups) * depth, batch_stride, row_stride);
  };
  if (fits(time * width, width)) {
    return PackedHeads{a.root, {batch, time, width}, {0, 1, 2}};
  }
  if (fits(width, batch * width)) {
    return PackedHeads{a.root, {time, batch, width}, {1, 0, 2}};
  }
  return std::nullopt;
}

struct Scores {
  Node* product = nullptr;  // q · kᵀ
  double scale = 1;
  Value* relative = nullptr;  // of AttentionRelative
  MaskOperands masks;
};

class AttentionFuser {
 public:
  AttentionFuser(Graph& graph, bool may_pack)
      : graph_(graph), may_pack_(may_pack), fixed_(graph) {}

  void Visit(Node& softmax) {
    Value *x = softmax.in(0), *p = softmax.out(0);
    bool float_4d = x->rank() == 4 &&
                    (x->dtype == DType::kFloat || x->dtype == DType::kDouble);
    int64_t axis = softmax.Int("axis", -1);
    if (!float_4d || (axis != -1 && axis != 3)) return;
    Value* safe = WithoutNaN(p);
    if (!IsReadOnce(graph_, safe) || safe->shape != p->shape) return;
    Node& last = *safe->uses[0];
    if (!last.Is("MatMul") || last.in(0) != safe || last.in(1)->rank() != 4) {
      return;
    }
    Builder b(graph_, last.out(0)->name + ".", &last);
    b.set_metadata(last.metadata);
    auto scores = FindScores(b, x);
    if (!scores || (safe != p && scores->masks.may_be_nan)) return;
    Replace(b, *scores, last);
  }

 private:
  // PyTorch's exporter writes Where(IsNaN(p), 0, p) behind a softmax with a
  // mask: rows that see nothing are 0. Returns the result of the Where; else p.
  Value* WithoutNaN(Value* p) const {
    if (p->uses.size() != 2 || IsReturned(graph_, p)) return p;
    for (const Node* test : p->uses) {
      if (!test->Is("IsNaN") || !IsReadOnce(graph_, test->out(0))) continue;
      const Node* choice = test->out(0)->uses[0];
      if (choice->Is("Where") && choice->in(0) == test->out(0) &&
          IsNumber(choice->in(1), 0) && choice->in(2) == p) {
        return choice->out(0);
      }
    }
    return p;
  }

  // Walks from the operand of the softmax up to the product.
  std::optional<Scores> FindScores(Builder& b, Value* x) {
    Scores s;
    AttentionMasks masks(fixed_);
    while (!s.product) {
      Node* node = x->producer;
      if (!node || !IsReadOnce(graph_, x) || node->in(0) == nullptr) return {};
      if (node->Is("MatMul")) {
        s.product = node;
        break;
      }
      Value* next = nullptr;
      if (auto factor = FactorOf(*node)) {
        s.scale *= factor->first;
        next = factor->second;
      } else if (s.scale == 1) {  // else the mask is scaled too
        next = masks.Read(b, *node);
      }
      if (!next || next->shape != x->shape) return {};
      x = next;
    }
    auto operands = masks.Combine(b);
    if (!operands) return {};
    s.relative = masks.relative();
    s.masks = *operands;
    return s;
  }

  // Skips factors, which are multiplied into the scale.
  static Value* Unscaled(Value* x, Scores& s) {
    while (x->producer) {
      auto factor = FactorOf(*x->producer);
      if (!factor) break;
      s.scale *= factor->first;
      x = factor->second;
    }
    return x;
  }

  // Returns x (B,G,S,D) if `repeated` (B,H,S,D) holds each head of x H/G times
  // in a row; else `repeated` itself.
  static Value* Unrepeated(Value* repeated) {
    const Node* join = repeated->producer;
    if (!join || !join->Is("Reshape")) return repeated;
    const Node* expand = join->in(0)->producer;
    if (!expand || !expand->Is("Expand")) return repeated;
    const Value* five_axes = Unsliced(expand->in(0));
    const Node* split = five_axes->producer;
    if (!split || (!split->Is("Unsqueeze") && !split->Is("Reshape"))) {
      return repeated;
    }
    Value* x = split->in(0);
    const Shape &five = *five_axes->shape, &all = *join->in(0)->shape;
    const Shape& y = *repeated->shape;
    if (x->rank() != 4 || all.size() != 5) return repeated;
    Shape one = {x->dim(0), x->dim(1), 1, x->dim(2), x->dim(3)};
    Shape many = {y[0], x->dim(1), all[2], y[2], y[3]};
    bool fits = five == one && all == many && all[1] * all[2] == y[1] &&
                x->dim(0) == y[0] && x->dim(2) == y[2] && x->dim(3) == y[3];
    return fits ? Unsliced(x) : repeated;
  }

  // Skips Slices that take everything.
  static Value* Unsliced(Value* x) {
    while (x->producer && x->producer->Is("Slice") &&
           x->producer->in(0)->shape == x->shape) {
      // A step of -1 would reverse it.
      const Value* steps = x->producer->in(4);
      if (steps && (!steps->is_constant() ||
                    !std::ranges::all_of(ToInts(steps->data),
                                         [](int64_t s) { return s > 0; }))) {
        break;
      }
      x = x->producer->in(0);
    }
    return x;
  }

  // Where a Transpose has put the time first before the layer of q, k and v,
  // the layer needs none.
  void KeepRows(Builder& b, PackedHeads& packed) {
    if (packed.perm[0] == 0) return;
    int64_t time = packed.shape[0], batch = packed.shape[1];
    if (Value* rows =
            RowsBeforeTranspose(b, views_, packed.root, batch, time)) {
      packed = {rows, {batch, time, packed.shape[2]}, {0, 1, 2}};
    }
  }

  void Replace(Builder& b, Scores s, Node& last) {
    Value* q = Unscaled(s.product->in(0), s);
    Value* kt = Unscaled(s.product->in(1), s);
    Value* v = last.in(1);
    if (q->rank() != 4 || kt->rank() != 4) return;
    int64_t heads = q->dim(1), batch = q->dim(0);
    bool plain = kt->dim(0) == batch && kt->dim(1) == heads &&
                 v->dim(0) == batch && v->dim(1) == heads &&
                 v->dim(2) == kt->dim(3) && heads > 0 && q->dim(3) > 0 &&
                 std::isfinite(static_cast<float>(s.scale));
    if (!plain || (s.masks.causal && q->dim(2) != v->dim(2))) return;
    Value* k = Unscaled(Permuted(b, kt, {0, 1, 3, 2}), s);
    Value *few_k = Unrepeated(k), *few_v = Unrepeated(v);
    if (few_k->dim(1) == few_v->dim(1)) k = few_k, v = few_v;
    if (s.masks.sees) q = b.Op("Where", {s.masks.sees, q, b.Scalar(0, q)});
    Attributes attributes = {{"heads", heads},
                             {"kv_heads", k->dim(1)},
                             {"scale", static_cast<float>(s.scale)},
                             {"causal", int64_t{s.masks.causal}},
                             {"round_to", static_cast<int64_t>(q->dtype)}};
    std::optional<PackedHeads> packed;
    if (may_pack_ && !s.relative) packed = FindPackedHeads(views_, q, k, v);
    std::vector<Value*> in;
    std::string op = "Attention";
    if (packed) {
      KeepRows(b, *packed);
      in = {b.Reshape(packed->root, packed->shape)};
      op += "Packed";
      attributes["perm"] = packed->perm;
    } else {
      in = {HeadsLast(b, q), HeadsLast(b, k), HeadsLast(b, v)};
    }
    if (s.relative) {
      in.push_back(s.relative);
      in.push_back(s.masks.bias ? s.masks.bias : b.Scalar(0, q));
      op += "Relative";
    } else if (s.masks.bias) {
      in.push_back(s.masks.bias);
      op += "Bias";
    }
    Value* y = b.Ops(op, in, 2, attributes, kDomain)[0];
    y->producer->name = last.name;
    Value* split = b.Reshape(y, {y->dim(0), y->dim(1), heads, v->dim(3)});
    bool time_first = packed && packed->perm[0] == 1;
    Value* turned =
        b.Transpose(split, time_first ? Perm{1, 2, 0, 3} : Perm{0, 2, 1, 3});
    views_.Forget(last.out(0));
    ReplaceWith(graph_, last, turned);
  }

  using Perm = std::vector<int64_t>;

  Graph& graph_;
  bool may_pack_;
  FixedValues fixed_;
  StridedViews views_;
};

}  // namespace

void FuseAttention(Graph& graph, bool may_pack) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (node.Is("Softmax")) found.push_back(&node);
  }
  if (found.empty()) return;
  AttentionFuser fuser(graph, may_pack);
  for (Node* node : found) fuser.Visit(*node);
  RemoveDeadCode(graph);
}

}  // namespace onnx_fp8
