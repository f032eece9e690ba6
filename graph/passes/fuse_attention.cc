// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_attention.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/keep_row_order.h"
#include "graph/passes/pattern.h"
#include "graph/passes/strided_view.h"
#include "graph/passes/triangle.h"

namespace onnx_fp8 {
namespace {

// The masks between the product q kᵀ and the softmax of attention.
//
// Masks may hide everything in a row. Finite numbers that hide scores then
// decide its probabilities, in columns above the diagonal too. So a triangle of
// finite numbers becomes `causal` only if no other mask can hide the diagonal;
// else it is a mask like others.

// Add(scores, mask), or a Where that replaces some scores by `fill`.
struct AttentionMask {
  Value* value = nullptr;
  Value* fill = nullptr;      // null: the mask is added
  bool marks_hidden = false;  // in a Where, true marks hidden scores
  bool causal = false;        // it hides scores above the diagonal only
  double upper = 0;           // if causal: the number above the diagonal
  // It hides scores of other segments only: these are the numbers (B,T).
  Value* segments = nullptr;
};

// What attention needs in place of its masks.
struct MaskOperands {
  bool causal = false;
  Value* bias = nullptr;      // added to the scores
  Value* segments = nullptr;  // int32 (B,T): a row sees its own segment
  // One bool for each row (…,T,1), false for a row that sees nothing: numbers
  // replace all scores of such a row, so its q decides nothing. Null: there is
  // no such row.
  Value* sees = nullptr;
  bool may_be_nan = false;  // a row may have nothing but -inf
};

// A score of this or less has no effect beside others.
constexpr double kHidden = -1e9;
// Numbers up to this size hide no score.
constexpr double kModest = 1e8;

// The triangle in a mask of square scores (…,T,T).
std::optional<Triangle> TriangleOf(const Value* mask, const Value& scores) {
  int64_t n = scores.dim(-1);
  return scores.dim(-2) == n ? TriangleIn(mask, n) : std::nullopt;
}

// The numbers (B,T) that a mask of scores (B,H,T,T) compares: true where row
// and column have one number. Null: it is another mask.
Value* SegmentsIn(const Value* mask, const Value& scores) {
  const Node* equal = mask->producer;
  if (!equal || !equal->Is("Equal")) return nullptr;
  const auto source = [](Value* value) {
    while (value->producer && (value->producer->Is("Unsqueeze") ||
                               value->producer->Is("Reshape"))) {
      value = value->producer->in(0);
    }
    return value;
  };
  const int64_t batch = scores.dim(0), rows = scores.dim(2);
  const Shape of_rows = {batch, 1, rows, 1}, of_columns = {batch, 1, 1, rows};
  const Shape &a = *equal->in(0)->shape, &b = *equal->in(1)->shape;
  Value* numbers = source(equal->in(0));
  const bool fits =
      (a == of_rows && b == of_columns) || (a == of_columns && b == of_rows);
  const bool same = numbers == source(equal->in(1)) &&
                    numbers->shape == Shape{batch, rows} &&
                    numbers->dtype == DType::kInt32;
  return fits && same && rows == scores.dim(3) ? numbers : nullptr;
}

bool IsFinite(const Value* value) {
  auto number = NumberIn(value);
  return number && std::isfinite(*number);
}

// Whether it adds constants that hide nothing.
bool IsModest(const AttentionMask& mask) {
  if (mask.fill || !mask.value->is_constant()) return false;
  Tensor numbers = ConvertTo(mask.value->data, DType::kDouble);
  const double* at = numbers.data<double>();
  return std::all_of(at, at + numbers.size(),
                     [](double x) { return std::fabs(x) <= kModest; });
}

// Whether all numbers that it gives to scores are finite.
bool IsAlwaysFinite(const AttentionMask& mask) {
  if (mask.fill) return IsFinite(mask.fill);
  const Node* node = mask.value->producer;
  return IsModest(mask) || (node && node->Is("Where") &&
                            IsFinite(node->in(1)) && IsFinite(node->in(2)));
}

// Returns one number for each diagonal of ids (T,S). The first diagonal has one
// element: row T - 1, column 0. Returns an empty vector if two elements of a
// diagonal differ.
std::vector<int64_t> Diagonals(const Tensor& ids) {
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

// (H,T+S-1) from (1,H,T,S) or (H,T,S); null for another form.
Value* Relative(Builder& b, Value* x, const Value& scores) {
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

// The bias of masks, the outermost first; null if there is none. A Where puts
// its number over all that is inside.
Value* BiasOf(Builder& b, const std::vector<AttentionMask>& masks) {
  Value* bias = nullptr;
  for (size_t i = masks.size(); i-- > 0;) {
    const AttentionMask& mask = masks[i];
    if (!mask.fill) {
      bias = bias ? b.Add(bias, mask.value) : mask.value;
      continue;
    }
    Value* shown = bias ? bias : b.Scalar(0, mask.fill);
    bias = b.Op("Where", {mask.value, mask.marks_hidden ? mask.fill : shown,
                          mask.marks_hidden ? shown : mask.fill});
  }
  return bias;
}

// Whether a row has a score that no Where hides.
Value* SeesOf(Builder& b, const std::vector<AttentionMask>& masks) {
  Value* seen = nullptr;
  for (const AttentionMask& mask : masks) {
    if (!mask.fill) continue;
    Value* shows = mask.marks_hidden ? b.Op("Not", {mask.value}) : mask.value;
    seen = seen ? b.Op("And", {seen, shows}) : shows;
  }
  if (seen->rank() == 0) seen = b.Reshape(seen, {1});
  Value* any = b.Op("ReduceMax", {b.Cast(seen, DType::kFloat), b.Ints({-1})},
                    {{"keepdims", int64_t{1}}});
  return b.Cast(any, DType::kBool);
}

class AttentionMasks {
 public:
  explicit AttentionMasks(const FixedValues& fixed) : fixed_(fixed) {}

  // Reads one Add or Where on the way from the softmax up to the product.
  // Returns its operand with the scores; null if the node has another form.
  Value* Read(Builder& b, const Node& node) {
    if (node.Is("Add")) return ReadAdd(b, node);
    if (node.Is("Where")) return ReadWhere(node);
    return nullptr;
  }

  // The operand `relative` of AttentionRelative; null if there is none.
  Value* relative() const { return relative_; }

  // Adds nodes for all masks that were read. nullopt: attention with these
  // operands would compute something else in rows that see nothing.
  std::optional<MaskOperands> Combine(Builder& b) const {
    const bool any_replaces = std::ranges::any_of(masks_, Replaces);
    MaskOperands operands;
    // No segment hides the diagonal, so the other masks decide as without it.
    std::vector<AttentionMask> masks, others;
    for (const AttentionMask& mask : masks_) {
      const bool apart = mask.segments && !operands.segments && !relative_;
      if (apart) operands.segments = mask.segments;
      if (!apart) masks.push_back(mask);
    }
    bool infinite = !any_replaces;
    for (const AttentionMask& mask : masks) {
      if (!mask.causal) {
        others.push_back(mask);
      } else {
        infinite &= mask.upper == -std::numeric_limits<double>::infinity();
      }
    }
    operands.causal = others.size() < masks.size() &&
                      (infinite || std::ranges::all_of(others, IsModest));
    const std::vector<AttentionMask>& left = operands.causal ? others : masks;
    operands.may_be_nan = !std::ranges::all_of(left, IsAlwaysFinite);
    if (any_replaces && !operands.causal) {
      // In a row that sees nothing, numbers that replace scores and numbers
      // that are added may compete.
      bool competes =
          std::ranges::any_of(masks_, [](const AttentionMask& mask) {
            return !mask.fill && !IsModest(mask);
          });
      if (relative_ || competes) return {};
      operands.sees = SeesOf(b, masks_);
    }
    operands.bias = BiasOf(b, left);
    return operands;
  }

 private:
  // Whether numbers take the place of scores.
  static bool Replaces(const AttentionMask& mask) {
    return mask.fill && IsFinite(mask.fill);
  }

  Value* ReadAdd(Builder& b, const Node& node) {
    for (size_t i : {0, 1}) {
      Value *mask = node.in(i), *rest = node.in(1 - i);
      if (mask->rank() > 4) continue;
      mask = WithoutRelative(b, mask, *node.out(0));
      if (!mask) return rest;
      if (!fixed_.Has(mask)) continue;
      auto triangle = TriangleOf(mask, *node.out(0));
      masks_.push_back({.value = mask,
                        .causal = triangle && triangle->lower == 0 &&
                                  triangle->upper <= kHidden,
                        .upper = triangle ? triangle->upper : 0});
      return rest;
    }
    return nullptr;
  }

  // Where(mask, hidden, scores) and Where(mask, scores, hidden).
  Value* ReadWhere(const Node& node) {
    Value* mask = node.in(0);
    if (!fixed_.Has(mask) || mask->rank() > 4) return nullptr;
    for (size_t i : {1, 2}) {
      auto fill = NumberIn(node.in(i));
      if (!fill || !(*fill <= kHidden) || node.in(i)->rank() > 4) continue;
      AttentionMask read = {mask, node.in(i), i == 1, false, *fill};
      // A number that is put over the mask would show what it hides.
      if (i == 2 && !std::isfinite(*fill) &&
          std::ranges::none_of(masks_, Replaces)) {
        read.segments = SegmentsIn(mask, *node.out(0));
      }
      AddWhere(read, *node.out(0));
      return node.in(3 - i);
    }
    return nullptr;
  }

  // A mask of -inf may be a causal one and others: Or(a, b) if true marks
  // hidden scores, else And(a, b).
  void AddWhere(AttentionMask mask, const Value& scores) {
    auto is_causal = [&](const Value* value) {
      auto triangle = TriangleOf(value, scores);
      return triangle && (triangle->lower != 0) != mask.marks_hidden &&
             (triangle->upper != 0) == mask.marks_hidden;
    };
    const char* join = mask.marks_hidden ? "Or" : "And";
    while (!(mask.causal = is_causal(mask.value))) {
      const Node* node = mask.value->producer;
      if (!node || !node->Is(join) || IsFinite(mask.fill)) break;
      size_t i = is_causal(node->in(0)) ? 0 : 1;
      if (!is_causal(node->in(i))) break;
      masks_.push_back(
          {node->in(i), mask.fill, mask.marks_hidden, true, mask.upper});
      mask.value = node->in(1 - i);
    }
    masks_.push_back(mask);
  }

  // Removes T5's trained bias from a mask. The bias is
  // Transpose(Gather(table, distances)). `distances` is a constant matrix. All
  // its elements on one diagonal are equal, so they select the same row of
  // `table`. The mask is the bias alone, or the sum of the bias and another
  // mask. Returns the other mask; null if the bias is the whole mask; the mask
  // itself if it has no such bias.
  Value* WithoutRelative(Builder& b, Value* mask, const Value& scores) {
    if (relative_ || fixed_.Has(mask)) return mask;
    const Node* node = mask->producer;
    if (node && node->Is("Add")) {
      for (size_t i : {0, 1}) {
        if (!fixed_.Has(node->in(i)) || node->in(i)->rank() > 4) continue;
        relative_ = Relative(b, node->in(1 - i), scores);
        if (relative_) return node->in(i);
      }
      return mask;
    }
    relative_ = Relative(b, mask, scores);
    return relative_ ? nullptr : mask;
  }

  const FixedValues& fixed_;
  std::vector<AttentionMask> masks_;  // the outermost first
  Value* relative_ = nullptr;
};

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
    Value* safe = WithoutNaN(graph_, p);
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
    } else if (s.masks.segments) {
      in.push_back(s.masks.bias ? s.masks.bias : b.Scalar(0, q));
      in.push_back(s.masks.segments);
      op += "Segments";
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
