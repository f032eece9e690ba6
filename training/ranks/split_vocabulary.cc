// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/split_vocabulary.h"

#include <limits>
#include <numeric>
#include <string>

#include "graph/builder.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {
namespace {

// Positions in the part [begin, begin + n) of a vocabulary; 0 for others.
struct Positions {
  Value* inside;  // whether it is one of the part
  Value* at;
};

Positions InPart(Builder& b, Value* ids, int64_t begin, int64_t n) {
  Value* at = b.Sub(ids, b.Scalar(static_cast<double>(begin), ids));
  Value* inside =
      b.Op("And", {b.Op("GreaterOrEqual", {at, b.Scalar(0, ids)}),
                   b.Op("Less", {at, b.Scalar(static_cast<double>(n), ids)})});
  return {inside, b.Op("Where", {inside, at, b.Scalar(0, ids)})};
}

// The name by which an error of `node` names it.
std::string NameOf(const Node& node) {
  return node.name.empty() ? node.out(0)->name : node.name;
}

// Ids from 0 on. Errors, of a Gather of the same name: no id of `rows`.
Value* CheckedIds(Builder& b, const Node& gather, int64_t rows) {
  Tensor table = Tensor::Allocate(DType::kInt64, {rows});
  std::iota(table.data<int64_t>(), table.data<int64_t>() + rows, 0);
  Value* ids = b.Op("Gather", {b.Constant(table), gather.in(1)});
  ids->producer->name = NameOf(gather);
  return ids;
}

// Zero. Errors, of a node of the loss's name: a label is no class. The least
// and the largest label go to two samples, whose lse is the logarithm of the
// number of classes.
Value* CheckedLabels(Builder& b, const Node& loss, Value* labels,
                     int64_t classes) {
  const Attributes keep = {{"keepdims", int64_t{1}}};
  Value* ends = b.Op("Concat",
                     {b.Op("ReduceMin", {labels, b.Ints({0})}, keep),
                      b.Op("ReduceMax", {labels, b.Ints({0})}, keep)},
                     {{"axis", int64_t{0}}});
  Value* scores =
      b.Constant(Tensor::Zeros(loss.in(0)->dtype, Shape{2, classes}));
  Value* lse =
      b.Ops("CrossEntropy", {scores, ends}, 2, loss.attributes, kDomain)[1];
  lse->producer->name = NameOf(loss);
  return b.Mul(b.ReduceSum(lse, {0}, false), b.Scalar(0, lse));
}

// `x` if the condition holds, else zeros. A Where with a flag of one element is
// a branch (needed_when.h): a rank whose flag is false drops all gradients in
// front of the branch. Here the gradients of other ranks must stay, so a Gather
// chooses between zeros and `x`.
Value* OrZero(Builder& b, Value* condition, Value* x) {
  if (NumElements(*condition->shape) == 1) {
    const Shape row = {1, NumElements(*x->shape)};
    Value* rows = b.Op(
        "Concat", {b.Constant(Tensor::Zeros(x->dtype, row)), b.Reshape(x, row)},
        {{"axis", int64_t{0}}});
    Value* at = b.Reshape(b.Cast(condition, DType::kInt64), {1});
    return b.Reshape(b.Op("Gather", {rows, at}), *x->shape);
  }
  return b.Op("Where", {condition, x, b.Scalar(0, x)});
}

// The first `n` scores of each sample; −∞ in place of the others.
Value* OfClasses(Builder& b, Value* scores, int64_t n) {
  Tensor exists = Tensor::Allocate(DType::kBool, {1, scores->dim(1)});
  for (int64_t i = 0; i < exists.size(); ++i) {
    exists.data<bool>()[i] = i < n;
  }
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  return b.Op("Where",
              {b.Constant(exists), scores, b.Scalar(-kInfinity, scores)});
}

}  // namespace

Value* OwnRows(Builder& behind, Node& gather, int64_t rank, int64_t rows) {
  Value* y = gather.out(0);
  const int64_t n = gather.in(0)->dim(0);
  Graph& graph = behind.graph();
  Builder before(graph, y->name + ".", &gather);
  Value* ids = CheckedIds(before, gather, rows);
  const Positions part = InPart(before, ids, rank * n, n);
  graph.SetInput(&gather, 1, part.at);
  Shape column = *ids->shape;
  column.push_back(1);
  return OrZero(behind, behind.Reshape(part.inside, column), y);
}

void CrossEntropyOfParts(Graph& graph, Node& loss, const Mesh& mesh,
                         int64_t rank, int64_t classes) {
  Value *scores = loss.in(0), *labels = loss.in(1), *result = loss.out(0);
  const int64_t samples = scores->dim(0), n = scores->dim(1);
  const Shape column = {samples, 1};
  Builder b(graph, result->name + ".", &loss);
  b.set_metadata(loss.metadata);
  const Attributes keep = {{"keepdims", int64_t{1}}};
  const Axes ranks = {kTensorRanks};
  if (n * mesh.tp > classes) scores = OfClasses(b, scores, classes - rank * n);
  // Any bound near the maximum will do. Rounded up it has no gradient.
  Value* largest = b.Op("ReduceMax", {scores, b.Ints({1})}, keep);
  Value* bound = b.Op("Ceil", {MaxOver(b, largest, mesh, ranks)});
  Value* powers = b.Op("Exp", {b.Sub(scores, bound)});
  Value* total = SumOver(b, b.ReduceSum(powers, {1}, true), mesh, ranks);
  Value* lse = b.Add(bound, b.Op("Log", {total}));
  const Positions part = InPart(b, labels, rank * n, n);
  Value* own = b.Op("GatherElements", {scores, b.Reshape(part.at, column)},
                    {{"axis", int64_t{1}}});
  own = OrZero(b, b.Reshape(part.inside, column), own);
  Value* losses = b.Sub(lse, SumOver(b, own, mesh, ranks));
  const auto ignored = static_cast<double>(loss.Int("ignore_index", -100));
  Value* counts =
      b.Op("Not", {b.Op("Equal", {labels, b.Scalar(ignored, labels)})});
  Value* counted = b.Op("Where", {counts, labels, b.Scalar(0, labels)});
  Value* zero = CheckedLabels(b, loss, counted, classes);
  Value* sum =
      b.ReduceSum(OrZero(b, b.Reshape(counts, column), losses), {0, 1}, false);
  Value* count = b.ReduceSum(b.Cast(counts, losses->dtype), {0}, false);
  Value* mean = b.Add(b.Div(sum, count), zero);
  graph.MoveOutput(result, mean->producer, 0);
  graph.RemoveNode(&loss);
}

}  // namespace onnx_fp8
