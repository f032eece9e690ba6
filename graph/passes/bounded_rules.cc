// SPDX-License-Identifier: Apache-2.0
//
// What each op does with rows whose number data decide.
#include <algorithm>
#include <limits>
#include <set>

#include "base/check.h"
#include "graph/op_facts.h"
#include "graph/passes/bounded_rows.h"
#include "graph/reduced_axes.h"

namespace onnx_fp8 {
namespace {

// The largest finite number: an infinite one would make NaN of no rows at all.
double Largest(DType dtype) {
  if (dtype == DType::kFloat16) return 65504;
  return std::numeric_limits<float>::max();
}

// The number that a reduction does not see.
double Neutral(const Node& node, DType dtype) {
  if (node.op == "ReduceProd") return 1;
  if (node.op == "ReduceMin") return Largest(dtype);
  if (node.op == "ReduceMax") return -Largest(dtype);
  return 0;
}

}  // namespace

BoundedRows::Rule BoundedRows::RuleOf(const Node& node) {
  using B = BoundedRows;
  static const std::unordered_map<OpForm, Rule> of_forms = {
      {OpForm::kElementwise, &B::Elementwise},
      {OpForm::kCopy, &B::Elementwise},
      {OpForm::kConvert, &B::Elementwise},
      {OpForm::kReshape, &B::Reshape},
      {OpForm::kTranspose, &B::Transpose},
      {OpForm::kSlice, &B::Slice},
      {OpForm::kSplit, &B::AlongAxis},
      {OpForm::kConcat, &B::Concat},
      {OpForm::kExpand, &B::Expand},
      {OpForm::kGather, &B::Gather},
      {OpForm::kTrailing, &B::Norm},
      {OpForm::kMatMul, &B::MatMul},
      {OpForm::kGemm, &B::Gemm}};
  static const std::unordered_map<std::string, Rule> of_ops = {
      {"ArgMax", &B::ArgExtreme},
      {"ArgMin", &B::ArgExtreme},
      {"Compress", &B::Compress},
      {"ConstantOfShape", &B::Expand},
      {"CumSum", &B::AlongAxis},
      {"GatherND", &B::GatherND},
      {"LogSoftmax", &B::AlongAxis},
      {"NegativeLogLikelihoodLoss", &B::Loss},
      {"NonZero", &B::NonZero},
      {"ReduceL1", &B::Reduce},
      {"ReduceL2", &B::Reduce},
      {"ReduceMax", &B::Reduce},
      {"ReduceMean", &B::Reduce},
      {"ReduceMin", &B::Reduce},
      {"ReduceProd", &B::Reduce},
      {"ReduceSum", &B::Reduce},
      {"ReduceSumSquare", &B::Reduce},
      {"ScatterElements", &B::ScatterElements},
      {"ScatterND", &B::ScatterND},
      {"Shape", &B::ShapeOf},
      {"Size", &B::MoveSizes},
      {"Softmax", &B::AlongAxis},
      {"SoftmaxCrossEntropyLoss", &B::Loss},
      {"TopK", &B::AlongAxis},
      {"Unique", &B::Unique}};
  auto of_form = of_forms.find(FactsOf(node).form);
  if (of_form != of_forms.end()) return of_form->second;
  auto of_op = of_ops.find(node.op);
  return of_op == of_ops.end() ? nullptr : of_op->second;
}

// Rows stay where they are; operands broadcast.
BoundedRows::Values BoundedRows::Elementwise(const Node& node,
                                             const Values& in) {
  Values results = Copy(node, in);
  int64_t rank = results[0]->rank();
  std::optional<Rows> rows;
  for (Value* value : in) {
    const Rows* of = value ? Find(value) : nullptr;
    if (!of) continue;
    Rows here = {of->axis + rank - value->rank(), of->group};
    if (rows && *rows != here) Refuse(node, "two operands differ in them");
    rows = here;
  }
  for (Value* value : in) {
    if (!value || Find(value)) continue;
    int64_t axis = rows->axis - (rank - value->rank());
    bool one = axis < 0 || value->dim(axis) == 1;
    if (!one) Refuse(node, "\"" + value->name + "\" has a fixed number");
  }
  for (Value* result : results) {
    if (result) Mark(result, *rows);
  }
  return results;
}

// Finds the rows' axis in y by the number of elements before it and by its
// size.
BoundedRows::Values BoundedRows::Reshape(const Node& node, const Values& in) {
  Value* x = in[0];
  if (sizes_.contains(x)) return MoveSizes(node, in);
  Builder b = BuilderFor(node);
  Values operands = in;
  if (node.Is("Reshape")) operands[1] = WithBounds(b, in[1]);
  Value* y = Copy(node, operands)[0];
  const Rows* rows = Find(x);
  if (!rows) return {y};
  int64_t before = 1, seen = 1;
  for (int64_t i = 0; i < rows->axis; ++i) before *= x->dim(i);
  for (int64_t axis = 0; axis < y->rank(); ++axis) {
    if (seen == before && y->dim(axis) == x->dim(rows->axis)) {
      return {Mark(y, {axis, rows->group})};
    }
    seen *= y->dim(axis);
  }
  // Joined with all axes behind it: each row becomes several.
  int64_t each = 1;
  for (int64_t i = rows->axis + 1; i < x->rank(); ++i) each *= x->dim(i);
  int64_t bound = x->dim(rows->axis) * each;
  if (before != 1 || y->rank() != 1 || y->dim(0) != bound) {
    Refuse(node, "it joins them with another axis");
  }
  const Group of = GroupOf(*rows);
  Value* exists = b.Op("Expand", {b.Reshape(of.exists, {of.bound, 1}),
                                  b.Ints({of.bound, each})});
  Rows joined = {0, groups_.size()};
  groups_.push_back({b.Reshape(exists, {bound}),
                     b.Mul(of.count, b.Ints({each})), bound, of.where});
  return {Mark(y, joined)};
}

BoundedRows::Values BoundedRows::Transpose(const Node& node, const Values& in) {
  Value* y = Copy(node, in)[0];
  const Rows& rows = *Find(in[0]);
  std::vector<int64_t> perm = node.Ints("perm");
  int64_t axis = y->rank() - 1 - rows.axis;
  if (!perm.empty()) axis = std::ranges::find(perm, rows.axis) - perm.begin();
  return {Mark(y, {axis, rows.group})};
}

BoundedRows::Values BoundedRows::Concat(const Node& node, const Values& in) {
  if (std::ranges::any_of(in, [&](auto* v) { return sizes_.contains(v); })) {
    return MoveSizes(node, in);
  }
  int64_t axis =
      NormalizeAxis(node.Int("axis", 0), in[0]->rank(), node.Where());
  const Rows* first = Find(in[0]);
  for (const Value* value : in) {
    const Rows* rows = Find(value);
    bool alike = first && rows && *rows == *first && rows->axis != axis;
    if (!alike) Refuse(node, "it joins rows of different numbers");
  }
  return {Mark(Copy(node, in)[0], *first)};
}

// Ops of one operand that keep all axes but their own.
BoundedRows::Values BoundedRows::AlongAxis(const Node& node, const Values& in) {
  const Rows* rows = Find(in[0]);
  if (!rows) Refuse(node);
  bool last = node.Is("Softmax") || node.Is("LogSoftmax") || node.Is("TopK");
  int64_t axis = node.Int("axis", last ? -1 : 0);
  if (node.Is("CumSum")) {
    if (!in[1]->is_constant()) Refuse(node, "its axis is computed");
    axis = IntAt(in[1]->data, 0);
  }
  axis = NormalizeAxis(axis, in[0]->rank(), node.Where());
  Values operands = in;
  if (axis == rows->axis) {
    if (!node.Is("Softmax")) Refuse(node, "it is along the rows");
    Builder b = BuilderFor(node);
    operands[0] = WithFill(b, in[0], -Largest(in[0]->dtype));
  }
  Values results = Copy(node, operands);
  for (Value* result : results) {
    if (result) Mark(result, *rows);
  }
  return results;
}

BoundedRows::Values BoundedRows::Norm(const Node& node, const Values& in) {
  const Rows* rows = Find(in[0]);
  if (!rows) Refuse(node);
  int64_t axis =
      NormalizeAxis(node.Int("axis", -1), in[0]->rank(), node.Where());
  if (axis <= rows->axis) Refuse(node, "it is along the rows");
  Values results = Copy(node, in);
  for (Value* result : results) {
    if (result) Mark(result, *rows);
  }
  return results;
}

BoundedRows::Values BoundedRows::Reduce(const Node& node, const Values& in) {
  Value* x = in[0];
  const Rows* rows = Find(x);
  if (!rows) return Count(node, in);
  const Value* list = in.size() > 1 ? in[1] : nullptr;
  const auto known = ReducedAxes(node, *x, list);
  if (!known) Refuse(node, "its axes are computed");
  const std::set<int64_t>& axes = *known;
  if (!axes.contains(rows->axis)) {
    const int64_t axis = AxisBehindReduce(node, axes, rows->axis);
    return {Mark(Copy(node, in)[0], {axis, rows->group})};
  }
  Builder b = BuilderFor(node);
  Values operands = in;
  operands[0] = WithFill(b, x, Neutral(node, x->dtype));
  if (!node.Is("ReduceMean")) return Copy(node, operands);
  Attributes attributes = node.attributes;
  Value* sum = b.Op("ReduceSum", operands, std::move(attributes));
  int64_t others = 1;
  for (int64_t axis : axes) others *= axis == rows->axis ? 1 : x->dim(axis);
  Value* count = b.Mul(GroupOf(*rows).count, b.Int(others));
  return {b.Div(sum, b.Reshape(b.Cast(count, x->dtype), {}))};
}

BoundedRows::Values BoundedRows::ArgExtreme(const Node& node,
                                            const Values& in) {
  const Rows& rows = *Find(in[0]);
  int64_t axis =
      NormalizeAxis(node.Int("axis", 0), in[0]->rank(), node.Where());
  Values operands = in;
  if (axis == rows.axis) {
    Builder b = BuilderFor(node);
    double most = Largest(in[0]->dtype);
    operands[0] = WithFill(b, in[0], node.Is("ArgMax") ? -most : most);
    return Copy(node, operands);
  }
  bool keeps = node.Int("keepdims", 1) != 0 || axis > rows.axis;
  return {Mark(Copy(node, in)[0], {rows.axis - !keeps, rows.group})};
}

BoundedRows::Values BoundedRows::MatMul(const Node& node, const Values& in) {
  Value *a = in[0], *c = in[1];
  const Rows *left = Find(a), *right = Find(c);
  bool inner_left = left && left->axis == a->rank() - 1;
  bool inner_right =
      right && right->axis == std::max<int64_t>(c->rank() - 2, 0);
  if (inner_left && inner_right && left->group == right->group) {
    Builder b = BuilderFor(node);
    return Copy(node, {WithFill(b, a, 0), WithFill(b, c, 0)});
  }
  if (inner_left || inner_right || (left && right) || a->rank() < 2 ||
      c->rank() < 2) {
    Refuse(node);
  }
  Value* y = Copy(node, in)[0];
  const Value* of = left ? a : c;
  const Rows& rows = left ? *left : *right;
  return {Mark(y, {rows.axis + y->rank() - of->rank(), rows.group})};
}

BoundedRows::Values BoundedRows::Gemm(const Node& node, const Values& in) {
  const Rows* rows = Find(in[0]);
  bool others = Find(in[1]) || (in.size() > 2 && in[2] && Find(in[2]));
  if (!rows || others) Refuse(node, "they are not rows of A alone");
  if (rows->axis != (node.Int("transA", 0) != 0 ? 1 : 0)) {
    Refuse(node, "it sums over them");
  }
  return {Mark(Copy(node, in)[0], {0, rows->group})};
}

BoundedRows::Values BoundedRows::Gather(const Node& node, const Values& in) {
  Value *x = in[0], *at = in[1];
  if (sizes_.contains(x)) return MoveSizes(node, in);
  int64_t axis = NormalizeAxis(node.Int("axis", 0), x->rank(), node.Where());
  const Rows *of_x = Find(x), *of_at = Find(at);
  if (of_x && of_x->axis != axis && of_at) Refuse(node);
  Values operands = in;
  const bool reads_rows = of_x && of_x->axis == axis && !of_at;
  if (reads_rows) {
    Builder b = BuilderFor(node);
    operands[1] = FromFront(b, at, x, axis, 0);
  }
  Value* y = Copy(node, operands)[0];
  if (reads_rows) return {y};
  if (of_at) return {Mark(y, {axis + of_at->axis, of_at->group})};
  int64_t shift = of_x->axis > axis ? at->rank() - 1 : 0;
  return {Mark(y, {of_x->axis + shift, of_x->group})};
}

BoundedRows::Values BoundedRows::GatherND(const Node& node, const Values& in) {
  const Rows *rows = Find(in[1]), *of_x = Find(in[0]);
  int64_t axes = in[1]->dim(-1);
  bool known = node.Int("batch_dims", 0) == 0 &&
               (!rows || rows->axis < in[1]->rank() - 1) &&
               (!of_x || of_x->axis < axes);
  if (!known) Refuse(node);
  Values operands = in;
  if (of_x) {
    Builder b = BuilderFor(node);
    operands[1] = FromFront(b, in[1], in[0], 0, axes);
  }
  Value* y = Copy(node, operands)[0];
  return {rows ? Mark(y, *rows) : y};
}

Value* BoundedRows::FromFront(Builder& b, Value* indices, const Value* x,
                              int64_t axis, int64_t axes) {
  const Rows& rows = *Find(x);
  Value* at = b.Cast(indices, DType::kInt64);
  Value* sizes = b.Reshape(GroupOf(rows).count, {});
  if (axes > 0) {
    Values parts;
    for (int64_t i = axis; i < axis + axes; ++i) {
      parts.push_back(i == rows.axis ? GroupOf(rows).count
                                     : b.Ints({x->dim(i)}));
    }
    sizes = parts.size() == 1 ? parts[0]
                              : b.Op("Concat", parts, {{"axis", int64_t{0}}});
  }
  Value* y =
      b.Op("Where", {b.Op("Less", {at, b.Int(0)}), b.Add(at, sizes), at});
  if (const Rows* of = Find(indices)) Mark(y, *of);
  return y;
}

// Rows that do not exist go to one more slice of the data, which is cut off.
BoundedRows::Values BoundedRows::ScatterElements(const Node& node,
                                                 const Values& in) {
  Builder b = BuilderFor(node);
  Value *x = in[0], *at = in[1], *updates = in[2];
  int64_t axis = NormalizeAxis(node.Int("axis", 0), x->rank(), node.Where());
  const Rows *of_at = Find(at), *of_updates = Find(updates);
  bool known = !Find(x) && of_at && of_at->axis == axis &&
               (!of_updates || of_updates->axis == of_at->axis);
  if (!known) Refuse(node);
  int64_t size = x->dim(axis);
  Value* place = b.Cast(at, DType::kInt64);
  place = b.Op("Where", {b.Op("Less", {place, b.Int(0)}),
                         b.Add(place, b.Int(size)), place});
  Mark(place, *of_at);
  auto slice = *x->shape;
  slice[static_cast<size_t>(axis)] = 1;
  Value* more =
      b.Op("Concat", {x, b.Op("Expand", {b.Scalar(0, x), b.Ints(slice)})},
           {{"axis", axis}});
  Values operands = {more, WithFill(b, place, static_cast<double>(size)),
                     updates};
  Value* y = Copy(node, operands)[0];
  return {b.Op("Slice", {y, b.Ints({0}), b.Ints({size}), b.Ints({axis})})};
}

BoundedRows::Values BoundedRows::ScatterND(const Node& node, const Values& in) {
  Builder b = BuilderFor(node);
  Value *x = in[0], *at = in[1], *updates = in[2];
  const Rows *of_at = Find(at), *of_updates = Find(updates);
  bool known = !Find(x) && of_at && of_at->axis == 0 && at->rank() == 2 &&
               (!of_updates || of_updates->axis == 0) &&
               updates->dim(0) == at->dim(0);
  if (!known) Refuse(node);
  auto k = static_cast<std::ptrdiff_t>(at->dim(1));
  const auto& shape = *x->shape;
  std::vector<int64_t> sizes(shape.begin(), shape.begin() + k);
  std::vector<int64_t> inner(shape.begin() + k, shape.end());
  int64_t rows = NumElements(sizes), width = NumElements(inner);
  int64_t count = at->dim(0);
  Value* place = b.Cast(at, DType::kInt64);
  place = b.Op("Where", {b.Op("Less", {place, b.Int(0)}),
                         b.Add(place, b.Ints(sizes)), place});
  place = b.ReduceSum(b.Mul(place, b.Ints(Strides(sizes))), {1}, true);
  Mark(place, *of_at);
  Value* none = b.Op("Expand", {b.Scalar(0, x), b.Ints({1, width})});
  Value* more = b.Op("Concat", {b.Reshape(x, {rows, width}), none},
                     {{"axis", int64_t{0}}});
  Values operands = {more, WithFill(b, place, static_cast<double>(rows)),
                     b.Reshape(updates, {count, width})};
  Value* y = Copy(node, operands)[0];
  y = b.Op("Slice", {y, b.Ints({0}), b.Ints({rows}), b.Ints({0})});
  return {b.Reshape(y, shape)};
}

// Labels of rows that do not exist are ignored.
BoundedRows::Values BoundedRows::Loss(const Node& node, const Values& in) {
  Value *scores = in[0], *labels = in[1];
  const Rows *of_scores = Find(scores), *of_labels = Find(labels);
  bool known = of_scores && of_labels && *of_scores == *of_labels &&
               of_scores->axis == 0 && !node.out(1) &&
               node.String("reduction", "mean") != "none";
  if (!known) Refuse(node);
  Builder b = BuilderFor(node);
  int64_t ignored = node.Int("ignore_index", -100);
  Values operands = in;
  operands[1] = WithFill(b, labels, static_cast<double>(ignored));
  Value* y = Copy(node, operands)[0];
  y->producer->attributes["ignore_index"] = ignored;
  return {y};
}

}  // namespace onnx_fp8
