// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/keep_row_order.h"
#include "graph/passes/packed_heads.h"
#include "graph/passes/pattern.h"
#include "graph/passes/triangle.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

// A score of this or less has no effect beside others.
constexpr double kHidden = -1e9;

// The triangle in a mask of square scores (…,T,T).
std::optional<Triangle> TriangleOf(const Value* mask, const Value& scores) {
  int64_t n = scores.dim(-1);
  return scores.dim(-2) == n ? TriangleIn(mask, n) : std::nullopt;
}

struct Scores {
  Node* product = nullptr;  // q · kᵀ
  double scale = 1;
  Value* relative = nullptr;  // of AttentionRelative
  Value* bias = nullptr;
  bool causal = false;
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
    if (!IsReadOnce(graph_, safe)) return;
    Node& last = *safe->uses[0];
    if (!last.Is("MatMul") || last.in(0) != safe || last.in(1)->rank() != 4) {
      return;
    }
    Builder b(graph_, last.out(0)->name + ".", &last);
    b.set_metadata(last.metadata);
    auto scores = FindScores(b, x);
    if (!scores || (safe != p && !SeesSomething(*scores))) return;
    Replace(b, *scores, last);
  }

 private:
  // PyTorch's exporter writes Where(IsNaN(p), 0, p) behind a softmax with a
  // mask: rows that see nothing are 0. The result of it; else p.
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

  // Whether every row sees a score: no mask hides the diagonal, and other
  // masks add finite numbers.
  static bool SeesSomething(const Scores& s) {
    if (!s.bias) return true;
    auto finite = [](const Value* x) {
      auto number = NumberIn(x);
      return number && std::isfinite(*number);
    };
    const Node* node = s.bias->producer;
    return node && node->Is("Where") && finite(node->in(1)) &&
           finite(node->in(2));
  }

  // Walks from the operand of the softmax up to the product.
  std::optional<Scores> FindScores(Builder& b, Value* x) {
    Scores s;
    while (true) {
      Node* node = x->producer;
      if (!node || !IsReadOnce(graph_, x) || node->in(0) == nullptr) return {};
      if (node->Is("MatMul")) {
        s.product = node;
        return s;
      }
      Value* next = nullptr;
      if (auto factor = FactorOf(*node)) {
        s.scale *= factor->first;
        next = factor->second;
      } else if (s.scale != 1) {
        return {};  // the mask is scaled too
      } else if (node->Is("Add")) {
        next = ReadAdd(b, *node, s);
      } else if (node->Is("Where")) {
        next = ReadWhere(b, *node, s);
      }
      if (!next || next->shape != x->shape) return {};
      x = next;
    }
  }

  void AddBias(Builder& b, Scores& s, Value* bias) {
    s.bias = s.bias ? b.Add(s.bias, bias) : bias;
  }

  // The scores to which a mask is added; null if there is none.
  Value* ReadAdd(Builder& b, const Node& node, Scores& s) {
    for (size_t i : {0, 1}) {
      Value *mask = node.in(i), *rest = node.in(1 - i);
      if (mask->rank() > 4) continue;
      mask = WithoutRelative(b, mask, *node.out(0), s);
      if (!mask) return rest;
      if (!fixed_.Has(mask)) continue;
      auto triangle = TriangleOf(mask, *node.out(0));
      if (triangle && triangle->lower == 0 && triangle->upper <= kHidden) {
        s.causal = true;
      } else {
        AddBias(b, s, mask);
      }
      return rest;
    }
    return nullptr;
  }

  // Removes T5's trained bias from a mask. The bias is
  // Transpose(Gather(table, distances)). `distances` is a constant matrix. All
  // its elements on one diagonal are equal, so they select the same row of
  // `table`. The mask is the bias alone, or the sum of the bias and another
  // mask. Returns the other mask; null if the bias is the whole mask; the mask
  // itself if it has no such bias.
  Value* WithoutRelative(Builder& b, Value* mask, const Value& scores,
                         Scores& s) {
    if (s.relative || fixed_.Has(mask)) return mask;
    const Node* node = mask->producer;
    if (node && node->Is("Add")) {
      for (size_t i : {0, 1}) {
        if (!fixed_.Has(node->in(i)) || node->in(i)->rank() > 4) continue;
        s.relative = Relative(b, node->in(1 - i), scores);
        if (s.relative) return node->in(i);
      }
      return mask;
    }
    s.relative = Relative(b, mask, scores);
    return s.relative ? nullptr : mask;
  }

  // (H,T+S-1) from (1,H,T,S) or (H,T,S); null for another form.
  static Value* Relative(Builder& b, Value* x, const Value& scores) {
    if (x->producer &&
        (x->producer->Is("Unsqueeze") || x->producer->Is("Reshape"))) {
      Shape four = *x->producer->in(0)->shape;
      four.insert(four.begin(), 1);
      if (*x->shape != four) return nullptr;
      x = x->producer->in(0);
    }
    const Node* turn = x->producer;
    if (!turn || !turn->Is("Transpose") ||
        turn->Ints("perm") != std::vector<int64_t>{2, 0, 1} ||
        *x->shape != Shape{scores.dim(1), scores.dim(2), scores.dim(3)}) {
      return nullptr;
    }
    const Node* gather = turn->in(0)->producer;
    if (!gather || !gather->Is("Gather") || gather->Int("axis", 0) != 0 ||
        gather->in(0)->rank() != 2 || !gather->in(1)->is_constant() ||
        gather->in(1)->rank() != 2) {
      return nullptr;
    }
    auto distances = Diagonals(gather->in(1)->data);
    if (distances.empty()) return nullptr;
    Value* rows = b.Op("Gather", {gather->in(0), b.Ints(distances)},
                       {{"axis", int64_t{0}}});
    return b.Transpose(rows, {1, 0});
  }

  // Returns one number for each diagonal of ids (T,S). The first diagonal has
  // one element: row T - 1, column 0. Returns an empty vector if two elements
  // of a diagonal differ.
  static std::vector<int64_t> Diagonals(const Tensor& ids) {
    const std::vector<int64_t> all = ToInts(ids);
    int64_t t = ids.dim(0), s = ids.dim(1);
    if (t == 0 || s == 0) return {};
    std::vector<int64_t> numbers(static_cast<size_t>(t + s - 1));
    for (int64_t i = t - 1; i >= 0; --i) {
      for (int64_t j = 0; j < s; ++j) {
        int64_t id = all[static_cast<size_t>(i * s + j)];
        int64_t& number = numbers[static_cast<size_t>(j - i + t - 1)];
        if (i == t - 1 || j == s - 1) number = id;
        if (number != id) return {};
      }
    }
    return numbers;
  }

  // The same for Where(mask, hidden, scores) and Where(mask, scores, hidden).
  Value* ReadWhere(Builder& b, const Node& node, Scores& s) {
    Value* mask = node.in(0);
    if (!fixed_.Has(mask) || mask->rank() > 4) return nullptr;
    for (size_t i : {1, 2}) {
      auto fill = NumberIn(node.in(i));
      if (!fill || *fill > kHidden) continue;
      bool where_true = i == 1;  // the mask marks the hidden scores
      mask = WithoutTriangle(mask, where_true, *node.out(0), s);
      if (mask) {
        Value *none = b.Scalar(0, node.in(i)), *lowest = node.in(i);
        AddBias(b, s,
                b.Op("Where", {mask, where_true ? lowest : none,
                               where_true ? none : lowest}));
      }
      return node.in(3 - i);
    }
    return nullptr;
  }

  // Removes a causal triangle from a mask. The mask is the triangle alone, or
  // Or(triangle, rest) if true marks hidden scores, or And(triangle, rest) if
  // true marks visible scores. Returns `rest`, null for a triangle alone, and
  // the mask itself if it has no causal triangle.
  static Value* WithoutTriangle(Value* mask, bool marks_hidden,
                                const Value& scores, Scores& s) {
    auto is_causal = [&](const Value* m) {
      auto triangle = TriangleOf(m, scores);
      return triangle && (triangle->lower != 0) != marks_hidden &&
             (triangle->upper != 0) == marks_hidden;
    };
    const Node* node = mask->producer;
    if (is_causal(mask)) {
      s.causal = true;
      return nullptr;
    }
    if (!node || !node->Is(marks_hidden ? "Or" : "And")) return mask;
    for (size_t i : {0, 1}) {
      if (!is_causal(node->in(i))) continue;
      s.causal = true;
      return WithoutTriangle(node->in(1 - i), marks_hidden, scores, s);
    }
    return mask;
  }

  // Skips factors, which are multiplied into the scale.
  static Value* Unscaled(Value* x, Scores& s) {
    while (x->producer) {
      auto factor = FactorOf(*x->producer);
      if (!factor || factor->second->shape != x->shape) break;
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
  static void KeepRows(Builder& b, PackedHeads& packed) {
    if (packed.perm[0] == 0) return;
    int64_t time = packed.shape[0], batch = packed.shape[1];
    if (Value* rows = RowsBeforeTranspose(b, packed.root, batch, time)) {
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
                 v->dim(2) == kt->dim(3) && heads > 0 && q->dim(3) > 0;
    if (!plain || (s.causal && q->dim(2) != v->dim(2))) return;
    Value* k = Unscaled(Permuted(b, kt, {0, 1, 3, 2}), s);
    Value *few_k = Unrepeated(k), *few_v = Unrepeated(v);
    if (few_k->dim(1) == few_v->dim(1)) k = few_k, v = few_v;
    Attributes attributes = {{"heads", heads},
                             {"kv_heads", k->dim(1)},
                             {"scale", static_cast<float>(s.scale)},
                             {"causal", int64_t{s.causal}},
                             {"round_to", static_cast<int64_t>(q->dtype)}};
    std::optional<PackedHeads> packed;
    if (may_pack_ && !s.relative) packed = FindPackedHeads(q, k, v);
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
      in.push_back(s.bias ? s.bias : b.Scalar(0, q));
      op += "Relative";
    } else if (s.bias) {
      in.push_back(s.bias);
      op += "Bias";
    }
    Value* y = b.Ops(op, in, 2, attributes, kDomain)[0];
    y->producer->name = last.name;
    Value* split = b.Reshape(y, {y->dim(0), y->dim(1), heads, v->dim(3)});
    bool time_first = packed && packed->perm[0] == 1;
    Value* turned =
        b.Transpose(split, time_first ? Perm{1, 2, 0, 3} : Perm{0, 2, 1, 3});
    ReplaceWith(graph_, last, turned);
  }

  using Perm = std::vector<int64_t>;

  Graph& graph_;
  bool may_pack_;
  FixedValues fixed_;
};

}  // namespace

void FuseAttention(Graph& graph, bool may_pack) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (node.Is("Softmax")) found.push_back(&node);
  }
  AttentionFuser fuser(graph, may_pack);
  for (Node* node : found) fuser.Visit(*node);
  if (!found.empty()) RemoveDeadCode(graph);
}

}  // namespace onnx_fp8
