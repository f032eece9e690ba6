// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/split_region.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "graph/op_facts.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

// ---- what nodes do with the axes of their operands, as far as constants tell

bool IsKnown(const Value* value) {
  return value && value->is_constant() &&
         (value->dtype == DType::kInt64 || value->dtype == DType::kInt32);
}

int64_t FromStart(int64_t axis, int64_t rank) {
  return axis < 0 ? axis + rank : axis;
}

// The axes, from 0 on, that an operand lists; nothing if it is absent, empty
// or no constant.
std::optional<std::vector<int64_t>> ListedAxes(const Node& node, size_t input,
                                               int64_t rank) {
  const Value* value = node.in(input);
  if (!IsKnown(value) || value->data.size() == 0) return std::nullopt;
  std::vector<int64_t> axes = ToInts(value->data);
  for (int64_t& axis : axes) axis = FromStart(axis, rank);
  return axes;
}

// A Slice takes all of the axis, in its order.
bool LeavesAxis(const Node& slice, int64_t axis) {
  const Value *x = slice.in(0), *y = slice.out(0), *steps = slice.in(4);
  // One element may come from anywhere.
  if (x->dim(axis) != y->dim(axis) || x->dim(axis) == 1) return false;
  if (!steps) return true;
  if (!IsKnown(steps)) return false;
  const std::vector<int64_t> step = ToInts(steps->data);
  std::vector<int64_t> axes(step.size());
  std::iota(axes.begin(), axes.end(), 0);
  if (slice.in(3)) axes = ListedAxes(slice, 3, x->rank()).value_or(Shape{});
  if (axes.size() != step.size()) return false;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] == axis && step[i] != 1) return false;
  }
  return true;
}

// ---- regions

int64_t Inner(const Shape& shape, int64_t axis) {
  const auto at = static_cast<size_t>(axis) + 1;
  return NumElements({shape.data() + at, shape.size() - at});
}

}  // namespace

bool IsLayer(const Node& node) {
  return node.Is("Gemm") && node.in(1)->rank() == 2 &&
         WeightBehind(node.in(1)) != nullptr;
}

std::optional<AxisSplit> Reshaped(const Shape& from, const AxisSplit& split,
                                  const Shape& shape, int64_t ranks) {
  const int64_t chunk = ChunkOf(from, split, ranks), period = chunk * ranks;
  for (int64_t axis = 0; axis < static_cast<int64_t>(shape.size()); ++axis) {
    const int64_t inner = Inner(shape, axis);
    const int64_t all = shape[static_cast<size_t>(axis)] * inner;
    if (inner > 0 && chunk > 0 && chunk % inner == 0 && all % period == 0) {
      return AxisSplit{axis, all / period};
    }
  }
  return std::nullopt;
}

// What a node demands of its other values when one of them is split.
class SplitRules {
 public:
  explicit SplitRules(SplitRegion& region) : region_(region) {}

  std::string Grow(Value* first, const AxisSplit& split) {
    Set(first, split);
    for (size_t next = 0; next < region_.order_.size() && why_.empty();
         ++next) {
      Value* value = region_.order_[next];
      if (value->producer) Visit(*value->producer);
      for (Node* reader : value->uses) Visit(*reader);
    }
    return why_;
  }

 private:
  void Refuse(const std::string& why) {
    if (why_.empty()) why_ = why;
  }

  void Set(Value* value, const AxisSplit& split) {
    if (const AxisSplit* known = region_.Find(value)) {
      if (*known != split) Refuse(value->name + " would have two divisions");
      return;
    }
    if (region_.whole_.contains(value)) {
      return Refuse(value->name + " is needed whole");
    }
    const bool fits = IsEven(*value->shape, split, region_.ranks_) ||
                      (region_.uneven_ && split.blocks == 1);
    if (!fits) {
      return Refuse(Concat(region_.ranks_, " ranks do not divide axis ",
                           split.axis, " of ", value->name, ", ",
                           ToString(*value->shape)));
    }
    if (!value->producer && !value->is_constant() &&
        (region_.layers_ || !IsParameter(*value))) {
      return Refuse(value->name + " is an input");
    }
    region_.splits_[value] = split;
    region_.order_.push_back(value);
  }

  static bool IsParameter(const Value& value) {
    return value.role == Role::kParameter || value.role == Role::kFrozen;
  }

  // Inputs and parameters stay whole where tokens are divided.
  void SetOperand(Node& node, size_t input, const AxisSplit& split) {
    Value* value = node.in(input);
    const bool slices = region_.layers_ && !value->producer &&
                        !value->is_constant() && !Find(value);
    if (!slices) return Set(value, split);
    SetWhole(value);
    if (!IsEven(*value->shape, split, region_.ranks_) || split.blocks != 1) {
      return Refuse(value->name + " has no equal parts");
    }
    for (const SlicedOperand& known : region_.sliced_) {
      if (known.node == &node && known.input == input) return;
    }
    region_.sliced_.push_back({&node, input, split});
  }

  // The value may be null.
  void SetWhole(const Value* value) {
    if (!value) return;
    if (region_.Find(value)) {
      return Refuse(value->name + " would be whole and divided");
    }
    region_.whole_.insert(value);
  }

  const AxisSplit* Find(const Value* value) const {
    return value ? region_.Find(value) : nullptr;
  }

  static void Keep(Node* node, std::vector<Node*>* nodes) {
    if (std::ranges::count(*nodes, node) == 0) nodes->push_back(node);
  }

  // Operands, then results.
  static std::vector<Value*> ValuesOf(const Node& node) {
    std::vector<Value*> values;
    for (const auto* list : {&node.inputs(), &node.outputs()}) {
      for (Value* value : *list) {
        if (value) values.push_back(value);
      }
    }
    return values;
  }

  // Operands from input `first` on. Whether this refused nothing.
  bool SetWholeFrom(const Node& node, size_t first) {
    for (size_t i = first; i < node.inputs().size(); ++i) SetWhole(node.in(i));
    return why_.empty();
  }

  // The first one that is split. REQUIRES: there is one.
  Value* AnySplit(const Node& node) const {
    for (Value* value : ValuesOf(node)) {
      if (Find(value)) return value;
    }
    return nullptr;
  }

  void Visit(Node& node) {
    if (!why_.empty()) return;
    if (IsLayer(node) && node.Int("transA", 0) != 0) {
      return Refuse(Concat("[", node.Where(), "] needs whole operands"));
    }
    if (ReadsZeros(node)) {
      return Refuse(Concat("[", node.Where(), "] needs equal parts"));
    }
    const OpFacts& facts = FactsOf(node);
    if (region_.layers_) {
      if (Touches(node)) return VisitEnd(node);
      if (IsLayer(node)) return VisitWholeLayer(node);
      if (facts.form == OpForm::kBatch) return VisitBatch(node);
    }
    if (facts.division == Division::kWhole || !VisitForm(node, facts.form)) {
      Refuse(Concat("[", node.Where(), "] needs whole operands"));
    }
  }

  // Whether there is a rule for the form.
  bool VisitForm(Node& node, OpForm form) {
    switch (form) {
      case OpForm::kGemm:
        if (!IsLayer(node)) return false;
        VisitLayer(node);
        return true;
      case OpForm::kElementwise:
      case OpForm::kCopy:
      case OpForm::kConvert:
        VisitAligned(node, 0);
        return true;
      case OpForm::kMatMul:
        VisitProduct(node);
        return true;
      case OpForm::kAlongAxis:
      case OpForm::kConcat:
        VisitAxis(node, node.Int("axis", -1));
        return true;
      case OpForm::kExpand:
        VisitExpand(node);
        return true;
      case OpForm::kSlice:
        VisitSlice(node);
        return true;
      case OpForm::kReduce:
        VisitReduce(node);
        return true;
      case OpForm::kTrailing:
        VisitTrailing(node);
        return true;
      case OpForm::kReshape:
        VisitReshape(node);
        return true;
      case OpForm::kTranspose:
        VisitTranspose(node);
        return true;
      case OpForm::kSplit:
        VisitSplit(node);
        return true;
      case OpForm::kGather:
        VisitGather(node);
        return true;
      case OpForm::kHeads:
        VisitAttention(node);
        return true;
      case OpForm::kRotated:
        VisitRotary(node);
        return true;
      case OpForm::kClasses:
        VisitLoss(node);
        return true;
      case OpForm::kAny:
      case OpForm::kBatch:
        return false;
    }
    return false;
  }

  // Zeros behind uneven parts would make results or gradients infinite or NaN.
  bool ReadsZeros(const Node& node) const {
    const auto ends_with_zeros = [&](const Value* value) {
      const AxisSplit* split = Find(value);
      return split && !IsEven(*value->shape, *split, region_.ranks_);
    };
    switch (FactsOf(node).division) {
      case Division::kUneven:
        return false;
      case Division::kEvenDivisor:
        return ends_with_zeros(node.in(1));
      default:
        return std::ranges::any_of(ValuesOf(node), ends_with_zeros);
    }
  }

  bool Touches(const Node& node) const {
    for (const Value* value : ValuesOf(node)) {
      if (region_.layers_->values.contains(value)) return true;
    }
    return false;
  }

  // A divided layer reads or gives values whose tokens are divided.
  void VisitEnd(Node& node) {
    const bool summed = region_.layers_->summed.contains(&node);
    Value* end = summed ? node.out(0) : node.in(0);
    const bool may_end = summed || IsLayer(node);
    for (const Value* value : ValuesOf(node)) {
      if (!Find(value) || (may_end && value == end)) continue;
      return Refuse(Concat("[", node.Where(), "] needs whole operands"));
    }
    if (IsLayer(node) && Find(end)->axis != 0) {
      Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
    }
  }

  void VisitWholeLayer(Node& node) {
    Value *x = node.in(0), *y = node.out(0);
    const AxisSplit split = *Find(Find(x) ? x : AnySplit(node));
    const Value* bias = node.in(2);
    const bool a_bias_per_row = bias && bias->rank() == 2 && bias->dim(0) != 1;
    if (split.axis != 0 || (!Find(x) && !Find(y)) || a_bias_per_row) {
      return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
    }
    SetOperand(node, 0, split);
    Set(y, split);
    SetWholeFrom(node, 1);
  }

  // The first axis of the first operand and the result.
  void VisitBatch(Node& node) {
    const AxisSplit split = *Find(AnySplit(node));
    if (split.axis != 0) {
      return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
    }
    SetOperand(node, 0, split);
    Set(node.out(0), split);
    SetWholeFrom(node, 1);
  }

  // y (M,N) = x (M,K) · weight + bias.
  void VisitLayer(Node& node) {
    Value *x = node.in(0), *weight = node.in(1), *bias = node.in(2),
          *y = node.out(0);
    const int64_t n_axis = node.Int("transB", 0) ? 0 : 1, k_axis = 1 - n_axis;
    const AxisSplit *of_x = Find(x), *of_y = Find(y), *of_w = Find(weight);
    const bool bias_fits =
        !bias || (bias->rank() == 1 && bias->dim(0) == y->dim(1) &&
                  node.Float("beta", 1) == 1);
    if (!bias_fits) {
      return Refuse(Concat("[", node.Where(), "] expected a vector as bias"));
    }
    const bool rows =
        (of_x && of_x->axis == 1) || (of_w && of_w->axis == k_axis);
    const bool columns = (of_y && of_y->axis == 1) ||
                         (of_w && of_w->axis == n_axis) || Find(bias);
    if (rows == columns) {
      return Refuse(Concat("[", node.Where(), "] is a layer by itself"));
    }
    if (rows && region_.uneven_) {
      return Refuse(Concat("[", node.Where(), "] needs equal parts"));
    }
    if (rows) {
      const int64_t blocks = of_x ? of_x->blocks : of_w->blocks;
      Set(x, {1, blocks});
      Set(weight, {k_axis, blocks});
      SetWhole(bias);
      SetWhole(y);
      return Keep(&node, &region_.summed_);
    }
    const int64_t blocks = of_y   ? of_y->blocks
                           : of_w ? of_w->blocks
                                  : Find(bias)->blocks;
    SetWhole(x);
    Set(weight, {n_axis, blocks});
    if (bias) Set(bias, {0, blocks});
    Set(y, {1, blocks});
  }

  // Values whose axes are aligned at the end, as broadcasting does. The last
  // `mixed` axes must be whole.
  void VisitAligned(Node& node, int64_t mixed) {
    const Value* known = AnySplit(node);
    const AxisSplit split = *Find(known);
    const int64_t from_end = known->rank() - split.axis;
    if (from_end <= mixed) {
      return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
    }
    const auto has = [&](const Value* value) {
      return value->rank() >= from_end && value->dim(-from_end) != 1;
    };
    const auto of = [&](const Value* value) {
      return AxisSplit{value->rank() - from_end, split.blocks};
    };
    for (size_t i = 0; i < node.inputs().size(); ++i) {
      Value* in = node.in(i);
      if (in && has(in)) {
        SetOperand(node, i, of(in));
      } else {
        SetWhole(in);
      }
    }
    for (Value* out : node.outputs()) {
      if (out && has(out)) {
        Set(out, of(out));
      } else {
        SetWhole(out);
      }
    }
  }

  // A vector as operand has an axis that the result lacks.
  void VisitProduct(Node& node) {
    if (node.in(0)->rank() < 2 || node.in(1)->rank() < 2) {
      return Refuse(Concat("[", node.Where(), "] needs whole operands"));
    }
    VisitAligned(node, 2);
  }

  void VisitAxis(Node& node, int64_t axis) {
    const Value* known = AnySplit(node);
    if (Find(known)->axis == FromStart(axis, known->rank())) {
      return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
    }
    VisitAligned(node, 0);
  }

  // A normalization along its last axes.
  void VisitTrailing(Node& node) {
    const int64_t rank = node.in(0)->rank();
    VisitAligned(node, rank - FromStart(node.Int("axis", -1), rank));
  }

  void VisitSlice(Node& node) {
    if (!SetWholeFrom(node, 1)) return;
    const AxisSplit split = *Find(AnySplit(node));
    if (!LeavesAxis(node, split.axis)) {
      return Refuse(Concat("[", node.Where(), "] cuts the divided axis"));
    }
    Set(node.in(0), split);
    Set(node.out(0), split);
  }

  // A reduction along other axes.
  void VisitReduce(Node& node) {
    Value *x = node.in(0), *y = node.out(0);
    if (!SetWholeFrom(node, 1)) return;
    const auto axes = ListedAxes(node, 1, x->rank());
    if (!axes) return Refuse(Concat("[", node.Where(), "] may mix all axes"));
    const bool keeps = node.Int("keepdims", 1) != 0;
    // The axis of y for each axis of x that stays.
    std::vector<std::pair<int64_t, int64_t>> pairs;
    for (int64_t of_x = 0, of_y = 0; of_x < x->rank(); ++of_x) {
      const bool reduced = std::ranges::count(*axes, of_x) > 0;
      if (!reduced) pairs.emplace_back(of_x, of_y);
      of_y += !reduced || keeps;
    }
    for (auto [of_x, of_y] : pairs) {
      const AxisSplit *in = Find(x), *out = Find(y);
      if (in && in->axis == of_x) return Set(y, {of_y, in->blocks});
      if (out && out->axis == of_y) return Set(x, {of_x, out->blocks});
    }
    Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
  }

  // The last axes of the result are the operand's, or repeat it.
  void VisitExpand(Node& node) {
    Value *x = node.in(0), *y = node.out(0);
    const int64_t more = y->rank() - x->rank();
    if (!SetWholeFrom(node, 1)) return;
    if (const AxisSplit* split = Find(x)) {
      if (x->dim(split->axis) != y->dim(split->axis + more)) {
        return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
      }
      return Set(y, {split->axis + more, split->blocks});
    }
    const AxisSplit split = *Find(y);
    const int64_t axis = split.axis - more;
    if (axis < 0 || x->dim(axis) == 1) return SetWhole(x);
    SetOperand(node, 0, {axis, split.blocks});
  }

  // One operand and one result with the same elements in the same order.
  void VisitReshape(const Node& node) {
    Value *x = node.in(0), *y = node.out(0);
    if (!SetWholeFrom(node, 1)) return;
    if (node.Is("Squeeze") && !node.in(1)) {
      // A part may have more axes of one element.
      return Refuse(Concat("[", node.Where(), "] needs whole operands"));
    }
    for (auto [from, to] : {std::pair{x, y}, std::pair{y, x}}) {
      const AxisSplit* split = Find(from);
      if (!split) continue;
      auto other = Reshaped(*from->shape, *split, *to->shape, region_.ranks_);
      if (!IsEven(*from->shape, *split, region_.ranks_)) {
        // The last axis may stay what it is.
        const bool last =
            split->axis == from->rank() - 1 && from->dim(-1) == to->dim(-1);
        other.reset();
        if (last) other = AxisSplit{to->rank() - 1, 1};
      }
      if (!other) {
        return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
      }
      Set(to, *other);
    }
  }

  void VisitTranspose(const Node& node) {
    Value *x = node.in(0), *y = node.out(0);
    std::vector<int64_t> perm = node.Ints("perm");
    if (!node.Has("perm")) {
      for (int64_t i = x->rank(); i-- > 0;) perm.push_back(i);
    }
    if (const AxisSplit* split = Find(x)) {
      Set(y,
          {std::ranges::find(perm, split->axis) - perm.begin(), split->blocks});
    } else {
      const AxisSplit of_y = *Find(y);
      Set(x, {perm[static_cast<size_t>(of_y.axis)], of_y.blocks});
    }
  }

  // Equal pieces of the divided axis have a part of its blocks.
  void VisitSplit(const Node& node) {
    Value* x = node.in(0);
    if (!SetWholeFrom(node, 1)) return;
    if (std::ranges::count(node.outputs(), nullptr) > 0) {
      return Refuse(Concat("[", node.Where(), "] has a piece without a name"));
    }
    const int64_t axis = FromStart(node.Int("axis", 0), x->rank());
    const auto pieces = static_cast<int64_t>(node.outputs().size());
    const Value* known = AnySplit(node);
    AxisSplit whole = *Find(known);
    if (whole.axis == axis) {
      for (const Value* out : node.outputs()) {
        if (out->dim(axis) * pieces == x->dim(axis)) continue;
        return Refuse(Concat("[", node.Where(), "] has unequal pieces"));
      }
      if (known != x) whole.blocks *= pieces;
      if (whole.blocks % pieces != 0) {
        return Refuse(Concat("[", node.Where(), "] cuts the divided axis"));
      }
    }
    Set(x, whole);
    if (whole.axis == axis) whole.blocks /= pieces;
    for (Value* out : node.outputs()) Set(out, whole);
  }

  // As OwnRows needs it.
  bool HasRowsOfTable(const Node& gather) const {
    const Value* x = gather.in(0);
    return *Find(x) == AxisSplit{0, 1} && x->rank() == 2 && IsFloat(x->dtype);
  }

  // Rows of a table. If each rank has some of the rows, the result is a sum;
  // else it has the operand's division.
  void VisitGather(Node& node) {
    Value *x = node.in(0), *indices = node.in(1), *y = node.out(0);
    const int64_t axis = FromStart(node.Int("axis", 0), x->rank());
    const int64_t more =
        indices->rank() - 1;  // axes of y before x's later ones
    const AxisSplit* of_x = Find(x);
    const AxisSplit* of_y = Find(y);
    const bool gathered =
        of_y && of_y->axis >= axis && of_y->axis < axis + indices->rank();
    if (region_.layers_ && !of_x && (gathered || Find(indices))) {
      return VisitIndices(node, axis);
    }
    int64_t at = of_x ? of_x->axis : -1;
    if (!of_x && of_y) {
      at = gathered ? axis : of_y->axis - (of_y->axis >= axis ? more : 0);
    }
    SetWhole(indices);
    if (!region_.layers_ && at == axis && of_x && !of_y &&
        HasRowsOfTable(node)) {
      SetWhole(y);
      return Keep(&node, &region_.summed_);
    }
    if (at < 0 || at == axis) {
      return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
    }
    const int64_t blocks = of_x ? of_x->blocks : of_y->blocks;
    Set(x, {at, blocks});
    Set(y, {at + (at > axis ? more : 0), blocks});
  }

  // A rank looks up its own tokens in a whole table.
  void VisitIndices(Node& node, int64_t axis) {
    const AxisSplit* of_indices = Find(node.in(1));
    const AxisSplit split = of_indices ? *of_indices : *Find(node.out(0));
    const int64_t at = split.axis - (of_indices ? 0 : axis);
    SetWhole(node.in(0));
    SetOperand(node, 1, {at, split.blocks});
    Set(node.out(0), {at + axis, split.blocks});
  }

  // Heads lie side by side on the last axis of q, k, v and y.
  void VisitHeads(Value* value, int64_t heads) {
    if (heads % region_.ranks_ != 0) {
      return Refuse(
          Concat(region_.ranks_, " ranks do not divide ", heads, " heads"));
    }
    Set(value, {value->rank() - 1, 1});
  }

  void VisitAttention(const Node& node) {
    const int64_t heads = node.Int("heads", 1),
                  groups = node.Int("kv_heads", 1);
    VisitHeads(node.in(0), heads);
    VisitHeads(node.in(1), groups);
    VisitHeads(node.in(2), groups);
    VisitHeads(node.out(0), heads);
    if (Value* lse = node.out(1)) Set(lse, {1, 1});
    // An addend of scores (B,H,T,S), behind the positions' own (H,T+S-1).
    Value* addend = node.in(3);
    if (node.IsOurs("AttentionRelative")) {
      SetIfMany(addend, 0);
      addend = node.in(4);
    }
    if (addend) SetIfMany(addend, addend->rank() - 3);
    if (node.IsOurs("AttentionSegments")) SetWhole(node.in(4));
  }

  // An operand whose axis may be repeated.
  void SetIfMany(Value* value, int64_t axis) {
    if (axis >= 0 && value->dim(axis) != 1) {
      Set(value, {axis, 1});
    } else {
      SetWhole(value);
    }
  }

  void VisitRotary(const Node& node) {
    const int64_t heads = node.Int("heads", 1);
    VisitHeads(node.in(0), heads);
    VisitHeads(node.out(0), heads);
    SetWhole(node.in(1));
    SetWhole(node.in(2));
  }

  // Each rank has the scores of some classes.
  void VisitLoss(Node& node) {
    const AxisSplit* split = Find(node.in(0));
    const bool fits = node.inputs().size() == 2 &&
                      node.attributes.size() == node.Has("ignore_index") &&
                      (!node.out(1) || node.out(1)->uses.empty());
    if (!fits || !split || *split != AxisSplit{1, 1}) {
      return Refuse(Concat("[", node.Where(), "] mixes the divided axis"));
    }
    SetWhole(node.in(1));
    for (const Value* out : node.outputs()) SetWhole(out);
    Keep(&node, &region_.losses_);
  }

  SplitRegion& region_;
  std::string why_;
};

std::string SplitRegion::Grow(Value* first, const AxisSplit& split) {
  return SplitRules(*this).Grow(first, split);
}

}  // namespace onnx_fp8
