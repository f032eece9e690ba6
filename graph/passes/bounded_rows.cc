// SPDX-License-Identifier: Apache-2.0
//
// Where such rows come from, and their sizes. bounded_rules.cc has the rules of
// the ops that read them.
#include "graph/passes/bounded_rows.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// Sizes of tensors are far above it.
constexpr int64_t kTag = -(int64_t{1} << 48);

bool IsTag(int64_t size) { return size <= kTag; }

bool MakesRows(const Node& node) {
  return node.Is("NonZero") || node.Is("Compress") || node.Is("Unique");
}

// Ops that move sizes, or make something of these sizes.
bool TakesSizes(const Node& node) {
  static const std::set<std::string, std::less<>> ops = {
      "Concat",  "ConstantOfShape", "Expand",  "Gather",
      "Reshape", "Slice",           "Squeeze", "Unsqueeze"};
  return ops.contains(node.op);
}

// The bools whose set elements the node counts; null if it does something else.
Value* CountedBools(const Node& node, const std::vector<Value*>& in) {
  const bool all = node.Is("ReduceSum") && in[0] &&
                   in[0]->dtype == DType::kInt64 &&
                   (in[0]->rank() == 1 || in.size() < 2 || !in[1]);
  if (!all) return nullptr;
  const Node* cast = in[0]->producer;
  if (!cast || !cast->Is("Cast")) return nullptr;
  Value* bools = cast->in(0);
  return bools->dtype == DType::kBool && bools->concrete() ? bools : nullptr;
}

// The mask behind other shapes of it.
const Value* MaskBehind(const Value* mask) {
  while (mask->producer && mask->producer->Is("Reshape")) {
    mask = mask->producer->in(0);
  }
  return mask;
}

// The operand that decides how many rows there are.
size_t DecidingOperand(const Node& node) { return node.Is("Compress") ? 1 : 0; }

std::vector<int64_t> UpTo(int64_t n) {
  std::vector<int64_t> numbers(static_cast<size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  return numbers;
}

Value* Zeros(Builder& b, int64_t n) {
  return b.Ints(std::vector<int64_t>(static_cast<size_t>(n), 0));
}

Value* First(Builder& b, Value* list, int64_t n) {
  return b.Op("Slice", {list, b.Ints({0}), b.Ints({n}), b.Ints({0})});
}

}  // namespace

bool BoundedRows::Concerns(const Node& node, const Values& in) const {
  if (!node.domain.empty()) return false;
  if (MakesRows(node)) {
    const Value* decides = in[DecidingOperand(node)];
    if (!decides || !decides->concrete()) return false;
    return !decides->is_constant() || !in[0]->is_constant();
  }
  if (std::ranges::any_of(in, [&](auto* v) { return rows_.contains(v); })) {
    return true;
  }
  if (CountedBools(node, in)) return true;
  return TakesSizes(node) &&
         std::ranges::any_of(in, [&](auto* v) { return sizes_.contains(v); });
}

std::vector<Value*> BoundedRows::Visit(const Node& node, const Values& in) {
  Rule rule = RuleOf(node);
  if (!rule) Refuse(node);
  return (this->*rule)(node, in);
}

std::string BoundedRows::DecidedBy(const Value* value) const {
  const Rows* rows = Find(value);
  return rows ? GroupOf(*rows).where : "";
}

const BoundedRows::Rows* BoundedRows::Find(const Value* value) const {
  auto it = rows_.find(value);
  return it == rows_.end() ? nullptr : &it->second;
}

Value* BoundedRows::Mark(Value* value, Rows rows) {
  rows_[value] = rows;
  return value;
}

Builder BoundedRows::BuilderFor(const Node& node) const {
  Builder b(out_, (node.out(0) ? node.out(0)->name : node.op) + ".");
  b.set_metadata(node.metadata);
  return b;
}

void BoundedRows::Refuse(const Node& node, const std::string& why) const {
  Fail("[", node.Where(), "] ", node.op,
       " reads rows whose number data decide, and has no rule for them here",
       why.empty() ? "" : ": ", why,
       "; rewrite the model so that a mask selects the rows");
}

BoundedRows::Values BoundedRows::Copy(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  Attributes attributes = node.attributes;
  Values inputs = in;
  std::string op = node.op;
  if (node.Is("CastLike")) {
    op = "Cast";
    attributes = {{"to", static_cast<int64_t>(in[1]->dtype)}};
    inputs.pop_back();
  }
  Values results =
      b.Ops(op, inputs, node.outputs().size(), std::move(attributes));
  results[0]->producer->name = node.name;
  for (Value* result : results) {
    Check(!result || result->concrete(), "[", node.Where(),
          "] shape of a result depends on data");
  }
  return results;
}

Value* BoundedRows::WithFill(Builder& b, Value* x, double fill) {
  const Rows* rows = Find(x);
  if (!rows) return x;
  std::vector<int64_t> shape(x->shape->size(), 1);
  const Group& group = GroupOf(*rows);
  shape[static_cast<size_t>(rows->axis)] = group.bound;
  return b.Op("Where", {b.Reshape(group.exists, shape), x, b.Scalar(fill, x)});
}

// The places of the flags, in order, then zeros: a flag's place goes to the
// slot that the number of flags before it tells; all others go to a last slot,
// which is cut off.
BoundedRows::Rows BoundedRows::Places(const Node& node, Builder& b,
                                      Value* flags, Value** places) {
  int64_t n = flags->dim(0);
  const Value* mask = MaskBehind(flags);
  if (auto known = of_mask_.find(mask); known != of_mask_.end()) {
    *places = known->second;
    return *Find(*places);
  }
  Value* ones = b.Cast(flags, DType::kInt64);
  Value* count = b.ReduceSum(ones, {0}, true);
  Value* before = b.Sub(b.Op("CumSum", {ones, b.Int(0)}), ones);
  Value* slots = b.Op("Where", {flags, before, b.Int(n)});
  Value* all =
      b.Op("ScatterElements", {Zeros(b, n + 1), slots, b.Ints(UpTo(n))},
           {{"axis", int64_t{0}}});
  Rows rows = {0, groups_.size()};
  *places = Mark(First(b, all, n), rows);
  Value* exists = b.Op("Less", {b.Ints(UpTo(n)), count});
  groups_.push_back({exists, count, n, node.Where()});
  of_mask_[mask] = *places;
  return rows;
}

// ---- sources

BoundedRows::Values BoundedRows::NonZero(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  Value* x = in[0];
  if (x->rank() == 0) Refuse(node, "x is a scalar");
  const auto sizes = *x->shape;
  int64_t n = NumElements(sizes);
  Value* flags = b.Reshape(b.Cast(WithFill(b, x, 0), DType::kBool), {n});
  Value* flat = nullptr;
  Rows rows = Places(node, b, flags, &flat);
  std::vector<int64_t> strides = Strides(sizes);
  Values axes;
  for (size_t i = 0; i < sizes.size(); ++i) {
    Value* index = b.Div(flat, b.Int(std::max<int64_t>(strides[i], 1)));
    index = b.Op("Mod", {index, b.Int(std::max<int64_t>(sizes[i], 1))});
    axes.push_back(b.Reshape(index, {1, n}));
  }
  Value* y =
      axes.size() == 1 ? axes[0] : b.Op("Concat", axes, {{"axis", int64_t{0}}});
  return {Mark(y, {1, rows.group})};
}

BoundedRows::Values BoundedRows::Compress(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  Value* x = in[0];
  bool flat = !node.Has("axis");
  if (flat) {
    if (Find(x)) Refuse(node, "without an axis");
    x = b.Reshape(x, {NumElements(*x->shape)});
  }
  int64_t axis = NormalizeAxis(node.Int("axis", 0), x->rank(), node.Where());
  const Rows* rows = Find(x);
  if (rows && rows->axis != axis) Refuse(node, "along another axis");
  if (in[1]->is_constant()) {
    if (rows) Refuse(node, "it reads single ones of them");
    std::vector<int64_t> kept;
    for (int64_t i = 0; i < in[1]->data.size(); ++i) {
      if (IntAt(in[1]->data, i) != 0) kept.push_back(i);
    }
    return {b.Op("Gather", {x, b.Ints(kept)}, {{"axis", axis}})};
  }
  Value* places = nullptr;
  Rows made = Places(node, b, WithFill(b, in[1], 0), &places);
  Value* y = b.Op("Gather", {x, places}, {{"axis", axis}});
  return {Mark(y, {axis, made.group})};
}

// Sorted, equal elements follow each other. The first of them are the rows.
BoundedRows::Values BoundedRows::Unique(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  Value* x = in[0];
  bool supported = !Find(x) && !node.Has("axis") && node.Int("sorted", 1) != 0;
  if (!supported) Refuse(node, "expected Unique of all elements, sorted");
  int64_t n = NumElements(*x->shape);
  Values sorted = b.Ops("TopK", {b.Reshape(x, {n}), b.Ints({n})}, 2,
                        {{"largest", int64_t{0}}});
  Value* later =
      b.Op("Slice", {sorted[0], b.Ints({1}), b.Ints({n}), b.Ints({0})});
  Value* changes =
      b.Op("Not", {b.Op("Equal", {later, First(b, sorted[0], n - 1)})});
  Tensor yes = ConvertTo(Tensor::Ints({1}), DType::kBool);
  Value* flags =
      b.Op("Concat", {b.Constant(yes), changes}, {{"axis", int64_t{0}}});
  Value* places = nullptr;
  Rows rows = Places(node, b, flags, &places);
  Value* ones = b.Ints(std::vector<int64_t>(static_cast<size_t>(n), 1));
  Value* of =
      b.Sub(b.Op("CumSum", {b.Cast(flags, DType::kInt64), b.Int(0)}), b.Int(1));
  auto scatter = [&](Value* at, Value* values, const char* reduction) {
    return b.Op("ScatterElements", {Zeros(b, n), at, values},
                {{"axis", int64_t{0}}, {"reduction", std::string(reduction)}});
  };
  auto first = [&](Value* list) {
    return Mark(b.Op("Gather", {list, places}), rows);
  };
  Values all = {first(sorted[0]), first(sorted[1]),
                scatter(sorted[1], of, "none"),
                Mark(scatter(of, ones, "add"), rows)};
  all.resize(node.outputs().size());
  return all;
}

// ---- sizes

BoundedRows::Values BoundedRows::ShapeOf(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  Value* x = in[0];
  const Rows* rows = Find(x);
  if (!rows) return MoveSizes(node, in);  // the shape of sizes
  int64_t rank = x->rank();
  auto clamp = [&](int64_t axis) {
    return std::clamp<int64_t>(axis < 0 ? axis + rank : axis, 0, rank);
  };
  int64_t start = clamp(node.Int("start", 0));
  int64_t end = std::max(start, clamp(node.Int("end", rank)));
  Values parts;
  std::vector<int64_t> tags;
  for (int64_t i = start; i < end; ++i) {
    bool decided = i == rows->axis;
    parts.push_back(decided ? GroupOf(*rows).count : b.Ints({x->dim(i)}));
    tags.push_back(decided ? kTag - static_cast<int64_t>(rows->group)
                           : x->dim(i));
  }
  if (parts.empty()) return {b.Ints({})};
  Value* shape = parts.size() == 1
                     ? b.Op("Identity", parts)
                     : b.Op("Concat", parts, {{"axis", int64_t{0}}});
  sizes_[shape] = Tensor::Ints(tags);
  return {shape};
}

// The number of set bools is the number of rows of their NonZero.
BoundedRows::Values BoundedRows::Count(const Node& node, const Values& in) {
  Value* bools = CountedBools(node, in);
  Builder b = BuilderFor(node);
  Value* places = nullptr;
  Value* flags = b.Reshape(bools, {NumElements(*bools->shape)});
  Rows rows = Places(node, b, flags, &places);
  Values results = Copy(node, in);
  if (NumElements(*results[0]->shape) != 1) return results;
  Tensor tag = Tensor::Ints({kTag - static_cast<int64_t>(rows.group)});
  sizes_[results[0]] = tag.Reshaped(*results[0]->shape);
  return results;
}

// An op that moves sizes does the same with their tags.
BoundedRows::Values BoundedRows::MoveSizes(const Node& node, const Values& in) {
  if (node.Is("Shape") || node.Is("Size")) {
    Builder b = BuilderFor(node);
    if (node.Is("Shape")) return {b.Ints(*in[0]->shape)};
    const Rows* rows = Find(in[0]);
    int64_t size = NumElements(*in[0]->shape);
    if (!rows) return {b.Int(size)};
    const Group& group = GroupOf(*rows);
    Value* each = b.Int(size / std::max<int64_t>(group.bound, 1));
    return {b.Mul(b.Reshape(group.count, {}), each)};
  }
  Values results = Copy(node, in);
  std::vector<Tensor> tags;
  for (Value* value : in) {
    auto it = value ? sizes_.find(value) : sizes_.end();
    if (it != sizes_.end()) {
      tags.push_back(it->second);
    } else if (!value || value->is_constant()) {
      tags.push_back(value ? value->data : Tensor());
    } else {
      return results;
    }
  }
  const Node& copy = *results[0]->producer;
  if (!evaluator_.CanEvaluate(copy)) return results;
  Tensor moved = evaluator_.Evaluate(copy, tags)[0];
  const auto values = ToInts(moved);
  if (std::ranges::any_of(values, IsTag)) {
    sizes_[results[0]] = moved;
  } else {
    Builder b = BuilderFor(node);
    results[0] = b.Constant(moved);
  }
  return results;
}

Value* BoundedRows::WithBounds(Builder& b, Value* sizes) {
  auto it = sizes_.find(sizes);
  if (it == sizes_.end()) return sizes;
  std::vector<int64_t> numbers = ToInts(it->second);
  for (int64_t& number : numbers) {
    if (IsTag(number)) {
      number = groups_[static_cast<size_t>(kTag - number)].bound;
    }
  }
  return b.Constant(Tensor::Ints(numbers).Reshaped(it->second.shape()));
}

BoundedRows::Values BoundedRows::Expand(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  const bool fills = node.Is("ConstantOfShape");
  Value* sizes = in[fills ? 0 : 1];
  Values operands = in;
  operands[fills ? 0 : 1] = WithBounds(b, sizes);
  Value* y = Copy(node, operands)[0];
  std::optional<Rows> rows;
  if (const Rows* of_x = fills ? nullptr : Find(in[0])) {
    rows = {of_x->axis + y->rank() - in[0]->rank(), of_x->group};
  }
  if (auto it = sizes_.find(sizes); it != sizes_.end()) {
    std::vector<int64_t> tags = ToInts(it->second);
    for (size_t i = 0; i < tags.size(); ++i) {
      if (!IsTag(tags[i])) continue;
      Rows wanted = {y->rank() - std::ssize(tags) + static_cast<int64_t>(i),
                     static_cast<size_t>(kTag - tags[i])};
      if (rows && *rows != wanted) Refuse(node, "two sizes are open");
      rows = wanted;
    }
  }
  return {rows ? Mark(y, *rows) : y};
}

// Cuts an axis at a group's count, or leaves rows whole.
BoundedRows::Values BoundedRows::Slice(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  Value* x = in[0];
  if (sizes_.contains(x)) return MoveSizes(node, in);
  auto ints = [&](size_t i, std::vector<int64_t> otherwise) {
    Value* list = i < in.size() ? in[i] : nullptr;
    if (!list) return otherwise;
    if (auto it = sizes_.find(list); it != sizes_.end()) {
      return ToInts(it->second);
    }
    if (!list->is_constant()) Refuse(node, "its bounds are computed");
    return ToInts(list->data);
  };
  std::vector<int64_t> starts = ints(1, {}), ends = ints(2, {});
  auto n = std::ssize(starts);
  std::vector<int64_t> axes = ints(3, UpTo(n));
  std::vector<int64_t> steps =
      ints(4, std::vector<int64_t>(static_cast<size_t>(n), 1));
  std::optional<Rows> rows;
  if (const Rows* of_x = Find(x)) rows = *of_x;
  Value* y = x;
  for (size_t i = 0; i < starts.size(); ++i) {
    int64_t axis = NormalizeAxis(axes[i], x->rank(), node.Where());
    bool whole = starts[i] == 0 && steps[i] == 1;
    if (IsTag(ends[i])) {
      auto group = static_cast<size_t>(kTag - ends[i]);
      int64_t bound = groups_[group].bound, size = y->dim(axis);
      Rows wanted = {axis, group};
      // Another group may count the same number of rows.
      bool fits = !rows || (rows->axis == axis && size == bound);
      if (!whole || !fits) Refuse(node);
      if (!rows && size < bound) {
        // Fails, as the file would, if there are more rows than x has.
        Value* at = b.Op(
            "Where", {groups_[group].exists, b.Ints(UpTo(bound)), b.Int(0)});
        y = b.Op("Gather", {y, at}, {{"axis", axis}});
        y->producer->name = node.name;
      } else if (!rows) {
        y = b.Op("Slice", {y, b.Ints({0}), b.Ints({bound}), b.Ints({axis})});
      }
      rows = wanted;
      continue;
    }
    if (rows && rows->axis == axis) {
      if (!whole || ends[i] < y->dim(axis)) Refuse(node, "it cuts the rows");
      continue;
    }
    y = b.Op("Slice", {y, b.Ints({starts[i]}), b.Ints({ends[i]}),
                       b.Ints({axis}), b.Ints({steps[i]})});
  }
  if (y == x) y = b.Op("Identity", {x});
  return {rows ? Mark(y, *rows) : y};
}

}  // namespace onnx_fp8
