// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/token_places.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/check.h"
#include "graph/op_facts.h"
#include "graph/reduced_axes.h"
#include "onnx_fp8/shape.h"

namespace onnx_fp8 {
namespace {

// Where the tokens of a row are in a value.
struct Tokens {
  int64_t axis = 1;
  int64_t step = 1;   // along the axis, from one token to the next
  int64_t count = 0;  // tokens
  int64_t first = 0;  // the place in its row of the first token
};

using FoundTokens = std::optional<Tokens>;

// Whether the axis has the tokens of one row and nothing else.
bool IsTokenAxis(const Value& value, const Tokens& tokens) {
  return tokens.step == 1 && value.dim(tokens.axis) == tokens.count;
}

int64_t AxisOf(const Node& node, int64_t axis, const Value& value) {
  return NormalizeAxis(axis, value.rank(), node.Where());
}

[[noreturn]] void RefuseMixing(const Node& node) {
  Fail("[", node.Where(), "] ", node.op,
       " mixes the tokens of a row: expected attention alone to do so, because "
       "`segment_ids` keeps documents apart there");
}

[[noreturn]] void RefuseMove(const Node& node) {
  Fail("[", node.Where(), "] ", node.op,
       " puts tokens of a row at the places of others: expected each to keep "
       "its place, because `segment_ids` keeps documents apart in attention "
       "alone");
}

class TokenWalk {
 public:
  explicit TokenWalk(const Value& segments)
      : samples_(segments.dim(0)), rows_(segments.dim(1)) {}

  void Run(const Graph& graph) {
    for (const Value* input : graph.inputs) {
      const bool given = IsFloat(input->dtype) && HasRows(*input);
      if (given && input->rank() > 2) tokens_[input] = Row();
    }
    for (const Node& node : graph.nodes()) Visit(node);
  }

 private:
  Tokens Row() const { return {.count = rows_}; }

  bool HasRows(const Value& value) const {
    return value.concrete() && value.rank() > 1 && value.dim(0) == samples_ &&
           value.dim(1) == rows_;
  }

  FoundTokens Of(const Value* value) const {
    const auto found = tokens_.find(value);
    return found == tokens_.end() ? FoundTokens() : found->second;
  }

  void Visit(const Node& node) {
    const bool known = std::ranges::all_of(
        node.inputs(), [](const Value* in) { return !in || in->concrete(); });
    if (!known || node.inputs().empty() || !node.in(0)) return;
    if (FactsOf(node).form == OpForm::kSplit) return VisitSplit(node);
    if (node.outputs().empty() || !node.out(0)) return;
    const Value& y = *node.out(0);
    if (!y.concrete() || !IsFloat(y.dtype)) return;
    const FoundTokens tokens = After(node, y);
    Keep(node, y, tokens);
    const bool reads_sum = std::ranges::any_of(
        node.inputs(), [this](const Value* in) { return sums_.contains(in); });
    if (reads_sum && tokens) RefuseMixing(node);
    if (SumsRow(node) || (reads_sum && KeepsRows(node))) {
      sums_.insert(&y);
    }
  }

  // Whether the node adds up the tokens of each row. A loss adds up the
  // samples, too, and does not count.
  bool SumsRow(const Node& node) const {
    const FoundTokens x = Of(node.in(0));
    if (!x || !IsTokenAxis(*node.in(0), *x)) return false;
    if (FactsOf(node).form == OpForm::kMatMul) {  // keys by values
      const Value &a = *node.in(0), &b = *node.in(1);
      const FoundTokens other = Of(&b);
      return a.rank() > 2 && b.rank() > 2 && x->axis == a.rank() - 1 && other &&
             other->axis == b.rank() - 2;
    }
    if (FactsOf(node).form != OpForm::kReduce) return false;
    const auto axes = ReducedAxes(node, *node.in(0), node.in(1));
    return axes && axes->contains(x->axis) && !axes->contains(0);
  }

  // Whether the result of the node has the rows of its operands.
  static bool KeepsRows(const Node& node) {
    switch (FactsOf(node).form) {
      case OpForm::kElementwise:
      case OpForm::kCopy:
      case OpForm::kConvert:
      case OpForm::kExpand:
      case OpForm::kConcat:
      case OpForm::kMatMul:
      case OpForm::kReshape:
      case OpForm::kTranspose:
      case OpForm::kSlice:
      case OpForm::kGemm:
      case OpForm::kAlongAxis:
      case OpForm::kTrailing:
        return true;
      default:
        return false;
    }
  }

  void VisitSplit(const Node& node) {
    const FoundTokens x = Of(node.in(0));
    if (!x) return;
    const int64_t axis = AxisOf(node, node.Int("axis", 0), *node.in(0));
    int64_t begin = 0;
    for (const Value* part : node.outputs()) {
      if (!part || !part->concrete()) return;
      Tokens tokens = *x;
      if (axis == tokens.axis) {
        if (!IsTokenAxis(*node.in(0), *x)) return;
        tokens.first += begin;
        tokens.count = part->dim(axis);
      }
      begin += part->dim(axis);
      Keep(node, *part, tokens);
    }
  }

  void Keep(const Node& node, const Value& value, const FoundTokens& tokens) {
    if (!tokens) return;
    if (tokens->count == rows_ && tokens->first != 0) RefuseMove(node);
    tokens_[&value] = *tokens;
  }

  // The tokens in the result y; nullopt: they are not known.
  FoundTokens After(const Node& node, const Value& y) const {
    switch (FactsOf(node).form) {
      case OpForm::kElementwise:
      case OpForm::kCopy:
      case OpForm::kConvert:
      case OpForm::kExpand:
        return Together(node, y);
      case OpForm::kConcat:
        return Concatenated(node, y);
      case OpForm::kGather:
        return Gathered(node);
      case OpForm::kMatMul:
        return Multiplied(node, y);
      default:
        break;
    }
    const FoundTokens x = Of(node.in(0));
    if (!x) return x;
    switch (FactsOf(node).form) {
      case OpForm::kReshape:
        return Reshaped(*node.in(0), y, *x);
      case OpForm::kTranspose:
        return Transposed(node, *x);
      case OpForm::kSlice:
        return Sliced(node, y, *x);
      case OpForm::kGemm:
        return ByGemm(node, *x);
      case OpForm::kReduce:
        return Reduced(node, *x);
      case OpForm::kAlongAxis:
        if (AxisOf(node, node.Int("axis", -1), y) == x->axis)
          RefuseMixing(node);
        return x;
      case OpForm::kTrailing:
        if (AxisOf(node, node.Int("axis", -1), y) <= x->axis)
          RefuseMixing(node);
        return x;
      default:
        return AfterOther(node, y, *x);
    }
  }

  // The tokens in y, whose operands are aligned at their last axes (broadcast).
  FoundTokens Together(const Node& node, const Value& y) const {
    FoundTokens all;
    for (const Value* in : node.inputs()) {
      FoundTokens one = in ? Of(in) : FoundTokens();
      if (!one) continue;
      const int64_t size = in->dim(one->axis);
      one->axis += y.rank() - in->rank();
      if (y.dim(one->axis) != size) continue;
      if (all && (all->axis != one->axis || all->step != one->step ||
                  all->count != one->count)) {
        return {};
      }
      if (all && all->first != one->first) RefuseMixing(node);
      all = one;
    }
    return all;
  }

  FoundTokens Concatenated(const Node& node, const Value& y) const {
    const int64_t axis = AxisOf(node, node.Int("axis", 0), y);
    FoundTokens all;
    int64_t begin = 0;
    for (const Value* in : node.inputs()) {
      FoundTokens one = Of(in);
      if (one && one->axis == axis) {
        if (!IsTokenAxis(*in, *one)) return {};
        one->first -= begin;
        if (all && all->first != one->first) RefuseMove(node);
        all = one;
      }
      begin += in->dim(axis);
    }
    if (!all) return Together(node, y);
    all->count = begin;
    return all;
  }

  FoundTokens Gathered(const Node& node) const {
    const Value &table = *node.in(0), &indices = *node.in(1);
    const int64_t axis = AxisOf(node, node.Int("axis", 0), table);
    if (FoundTokens x = Of(&table)) {
      if (axis == x->axis) return {};
      if (axis < x->axis) x->axis += indices.rank() - 1;
      return x;
    }
    const bool embeds = axis == 0 && ComesFromWeight(&table) &&
                        HasRows(indices) && !ComesFromWeight(&indices);
    return embeds ? Row() : FoundTokens();
  }

  FoundTokens Multiplied(const Node& node, const Value& y) const {
    const Value &a = *node.in(0), &b = *node.in(1);
    if (a.rank() < 2 || b.rank() < 2) return {};
    FoundTokens left = Of(&a), right = Of(&b);
    const bool left_sums = left && left->axis == a.rank() - 1;
    const bool right_sums = right && right->axis == b.rank() - 2;
    if (left && ComesFromWeight(&b)) {
      if (left_sums) return Summed(node, a, *left);
      left->axis += y.rank() - a.rank();
      return left;
    }
    if (right && ComesFromWeight(&a)) {
      if (right_sums) return Summed(node, b, *right);
      right->axis += y.rank() - b.rank();
      return right;
    }
    if (left && !left_sums && sums_.contains(&b)) {
      left->axis += y.rank() - a.rank();
      return left;
    }
    // Probabilities of attention.
    const bool weighs =
        right_sums && !left_sums && right->count == rows_ && y.dim(-2) == rows_;
    if (!weighs) return {};
    Tokens tokens = Row();
    tokens.axis = y.rank() - 2;
    return tokens;
  }

  static FoundTokens ByGemm(const Node& node, const Tokens& x) {
    if (!ComesFromWeight(node.in(1))) return {};
    const int64_t rows = node.Int("transA", 0) == 0 ? 0 : 1;
    if (x.axis != rows) return Summed(node, *node.in(0), x);
    Tokens tokens = x;
    tokens.axis = 0;
    return tokens;
  }

  // A matrix of weights says how much each token counts.
  static FoundTokens Summed(const Node& node, const Value& value,
                            const Tokens& tokens) {
    if (IsTokenAxis(value, tokens)) RefuseMixing(node);
    return {};
  }

  static FoundTokens Reshaped(const Value& x, const Value& y, Tokens tokens) {
    const std::vector<int64_t> strides = Strides(*y.shape);
    const int64_t apart =
        tokens.step * Strides(*x.shape)[static_cast<size_t>(tokens.axis)];
    for (int64_t axis = 0; axis < y.rank(); ++axis) {
      const int64_t stride = strides[static_cast<size_t>(axis)];
      const bool holds = stride > 0 && apart % stride == 0 &&
                         apart * tokens.count <= stride * y.dim(axis);
      if (!holds) continue;
      tokens.axis = axis;
      tokens.step = apart / stride;
      return tokens;
    }
    return {};
  }

  static FoundTokens Transposed(const Node& node, Tokens tokens) {
    const int64_t rank = node.in(0)->rank();
    const std::vector<int64_t> perm = node.Ints("perm");
    const auto at = std::ranges::find(perm, tokens.axis);
    tokens.axis = perm.empty() ? rank - 1 - tokens.axis : at - perm.begin();
    return tokens;
  }

  static FoundTokens Reduced(const Node& node, Tokens tokens) {
    const auto axes = ReducedAxes(node, *node.in(0), node.in(1));
    if (!axes || axes->contains(tokens.axis)) return {};
    tokens.axis = AxisBehindReduce(node, *axes, tokens.axis);
    return tokens;
  }

  static FoundTokens Sliced(const Node& node, const Value& y, Tokens tokens) {
    const Value& x = *node.in(0);
    for (size_t i = 1; i < node.inputs().size(); ++i) {
      if (node.in(i) && !node.in(i)->is_constant()) return {};
    }
    const std::vector<int64_t> starts = ToInts(node.in(1)->data);
    for (size_t i = 0; i < starts.size(); ++i) {
      const Value *axes = node.in(3), *steps = node.in(4);
      const int64_t axis = AxisOf(
          node, axes ? ToInts(axes->data)[i] : static_cast<int64_t>(i), x);
      if (axis != tokens.axis) continue;
      if (steps && ToInts(steps->data)[i] != 1) return {};
      const int64_t size = x.dim(axis);
      if (y.dim(axis) == size) continue;
      if (!IsTokenAxis(x, tokens)) return {};
      const int64_t start = starts[i] < 0 ? starts[i] + size : starts[i];
      tokens.first += std::clamp<int64_t>(start, 0, size);
      tokens.count = y.dim(axis);
    }
    return tokens;
  }

  static FoundTokens Padded(const Node& node, const Value& y, Tokens tokens) {
    const Value *pads = node.in(1), *axes = node.in(3);
    if (!pads->is_constant() || (axes && !axes->is_constant())) return {};
    const std::vector<int64_t> sizes = ToInts(pads->data);
    int64_t begin = 0;
    for (size_t i = 0; i < sizes.size() / 2; ++i) {
      const int64_t axis = axes ? AxisOf(node, ToInts(axes->data)[i], y)
                                : static_cast<int64_t>(i);
      if (axis == tokens.axis) begin = sizes[i];
    }
    const Value& x = *node.in(0);
    if (begin == 0 && y.dim(tokens.axis) == x.dim(tokens.axis)) return tokens;
    if (!IsTokenAxis(x, tokens)) return {};
    tokens.first -= begin;
    tokens.count = y.dim(tokens.axis);
    return tokens;
  }

  static FoundTokens AfterOther(const Node& node, const Value& y,
                                const Tokens& tokens) {
    if (node.Is("Pad")) return Padded(node, y, tokens);
    if (node.Is("BatchNormalization")) return tokens;
    if (node.Is("CumSum") || node.Is("CumProd")) {
      if (!node.in(1)->is_constant()) return {};
      const int64_t axis = AxisOf(node, ToInts(node.in(1)->data).at(0), y);
      if (axis == tokens.axis) RefuseMixing(node);
      return tokens;
    }
    const bool along = tokens.axis >= 2;  // behind samples and channels
    if (node.Is("InstanceNormalization") || node.Is("GroupNormalization")) {
      if (along) RefuseMixing(node);
      return tokens;
    }
    const bool pools =
        node.Is("AveragePool") || node.Is("LpPool") || node.Is("MaxPool");
    if (!along || (!pools && !node.Is("Conv"))) return {};
    const std::vector<int64_t> window = node.Ints("kernel_shape");
    const auto i = static_cast<size_t>(tokens.axis - 2);
    if (pools && i < window.size() && window[i] > 1) RefuseMixing(node);
    const bool same = y.rank() == node.in(0)->rank() &&
                      y.dim(tokens.axis) == node.in(0)->dim(tokens.axis);
    return same ? FoundTokens(tokens) : FoundTokens();
  }

  const int64_t samples_, rows_;
  std::unordered_map<const Value*, Tokens> tokens_;
  std::unordered_set<const Value*> sums_;  // over the tokens of a row
};

}  // namespace

bool ComesFromWeight(const Value* value) {
  const auto moves = [](const Node& node) {
    return node.Is("Cast") || node.Is("Identity") || node.Is("Reshape") ||
           node.Is("Transpose");
  };
  while (value->producer && moves(*value->producer)) {
    value = value->producer->in(0);
  }
  return value->is_initializer() || value->is_constant();
}

void RequireTokensInPlace(const Graph& graph, const Value& segments) {
  if (segments.dim(1) > 1) TokenWalk(segments).Run(graph);
}

}  // namespace onnx_fp8
