// SPDX-License-Identifier: Apache-2.0
//
// Masks may hide everything in a row. Finite numbers that hide scores then
// decide its probabilities, in columns above the diagonal too. So a triangle of
// finite numbers becomes `causal` only if no other mask can hide the diagonal;
// else it is a mask like others.
#include "graph/passes/attention_masks.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "graph/passes/triangle.h"

namespace onnx_fp8 {
namespace {

// A score of this or less has no effect beside others.
constexpr double kHidden = -1e9;
// Numbers up to this size hide no score.
constexpr double kModest = 1e8;

// The triangle in a mask of square scores (…,T,T).
std::optional<Triangle> TriangleOf(const Value* mask, const Value& scores) {
  int64_t n = scores.dim(-1);
  return scores.dim(-2) == n ? TriangleIn(mask, n) : std::nullopt;
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

}  // namespace

Value* AttentionMasks::Read(Builder& b, const Node& node) {
  if (node.Is("Add")) return ReadAdd(b, node);
  if (node.Is("Where")) return ReadWhere(node);
  return nullptr;
}

Value* AttentionMasks::ReadAdd(Builder& b, const Node& node) {
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

// Removes T5's trained bias from a mask. The bias is
// Transpose(Gather(table, distances)). `distances` is a constant matrix. All
// its elements on one diagonal are equal, so they select the same row of
// `table`. The mask is the bias alone, or the sum of the bias and another
// mask. Returns the other mask; null if the bias is the whole mask; the mask
// itself if it has no such bias.
Value* AttentionMasks::WithoutRelative(Builder& b, Value* mask,
                                       const Value& scores) {
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

// Where(mask, hidden, scores) and Where(mask, scores, hidden).
Value* AttentionMasks::ReadWhere(const Node& node) {
  Value* mask = node.in(0);
  if (!fixed_.Has(mask) || mask->rank() > 4) return nullptr;
  for (size_t i : {1, 2}) {
    auto fill = NumberIn(node.in(i));
    if (!fill || !(*fill <= kHidden) || node.in(i)->rank() > 4) continue;
    AddWhere({mask, node.in(i), i == 1, false, *fill}, *node.out(0));
    return node.in(3 - i);
  }
  return nullptr;
}

// A mask of -inf may be a causal one and others: Or(a, b) if true marks hidden
// scores, else And(a, b).
void AttentionMasks::AddWhere(AttentionMask mask, const Value& scores) {
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

std::optional<MaskOperands> AttentionMasks::Combine(Builder& b) const {
  // Numbers that replace scores.
  auto replaces = [](const AttentionMask& mask) {
    return mask.fill && IsFinite(mask.fill);
  };
  const bool any_replaces = std::ranges::any_of(masks_, replaces);
  std::vector<AttentionMask> others;
  bool infinite = !any_replaces;
  for (const AttentionMask& mask : masks_) {
    if (!mask.causal) {
      others.push_back(mask);
    } else {
      infinite &= mask.upper == -std::numeric_limits<double>::infinity();
    }
  }
  MaskOperands operands;
  operands.causal = others.size() < masks_.size() &&
                    (infinite || std::ranges::all_of(others, IsModest));
  const std::vector<AttentionMask>& left = operands.causal ? others : masks_;
  operands.may_be_nan = !std::ranges::all_of(left, IsAlwaysFinite);
  if (any_replaces && !operands.causal) {
    // In a row that sees nothing, numbers that replace scores and numbers that
    // are added may compete.
    bool competes = std::ranges::any_of(masks_, [](const AttentionMask& mask) {
      return !mask.fill && !IsModest(mask);
    });
    if (relative_ || competes) return {};
    operands.sees = SeesOf(b, masks_);
  }
  operands.bias = BiasOf(b, left);
  return operands;
}

}  // namespace onnx_fp8
