// SPDX-License-Identifier: Apache-2.0
//
// Collectives: all ranks of the group `group` run the node together. `ranks` is
// their number N, for which the graph was built.
//   AllReduce      x → y       y = the sum or maximum of the ranks' x
//   AllGather      x (n,…) → y (N·n,…)   the ranks' x, one after the other;
//                  with attribute `rows`, y (rows,…): the first rows of these
//   ReduceScatter  x (N·n,…) → y (n,…)   block r of the sum, on rank r
//   Broadcast      x → y       y = the x of rank `root`
//   CopyToRanks    x → y       y = x. Each rank goes on with other work, so the
//                  gradient of x is the sum of the ranks' gradients.
// AllReduce and ReduceScatter take float, double, int32 and int64. Nodes with
// the same number `bucket` stand side by side and do the same for other
// tensors; a provider may send them in one call. A bucket of AllReduce or
// ReduceScatter has one dtype.
//
// A body is what one rank does, so a step that was built for one rank runs
// anywhere. There is none for more ranks (passes/expand.h).
#include "base/check.h"
#include "graph/print.h"
#include "graph/schemas.h"
#include "graph/schemas/infer.h"

namespace onnx_fp8 {
namespace {

constexpr char kOneRank[] = "(x) => (y) { y = Identity (x) }";

int64_t RanksOf(const Node& node) {
  int64_t ranks = node.Int("ranks", 0);
  Check(ranks > 0, "[", node.Where(),
        "] expected at least 1 as attribute \"ranks\", got ", ranks);
  return ranks;
}

void CheckReduced(const Node& node) {
  DType dtype = node.in(0)->dtype;
  bool known = dtype == DType::kFloat || dtype == DType::kDouble ||
               dtype == DType::kInt32 || dtype == DType::kInt64 ||
               dtype == DType::kUndefined;
  Check(known, "[", node.Where(),
        "] expected float, double, int32 or int64, got ", Name(dtype));
}

void InferAllReduce(Node& node) {
  RanksOf(node);
  CheckReduced(node);
  std::string reduction = node.String("reduction", "");
  Check(reduction == "sum" || reduction == "max", "[", node.Where(),
        "] expected sum or max as attribute \"reduction\", got '", reduction,
        "'");
  SameAs(node.in(0), node.out(0));
}

// The first axis of the input. Errors: a scalar.
int64_t FirstAxis(const Node& node) {
  const Value& x = *node.in(0);
  Check(x.rank() > 0, "[", node.Where(),
        "] expected an operand with an axis, got a scalar");
  return x.dim(0);
}

void InferAllGather(Node& node) {
  int64_t ranks = RanksOf(node);
  SameAs(node.in(0), node.out(0));
  if (!node.in(0)->concrete()) return;
  const int64_t all = ranks * FirstAxis(node), rows = node.Int("rows", all);
  Check(rows >= 0 && rows <= all, "[", node.Where(), "] expected at most ", all,
        " as attribute \"rows\", got ", rows);
  (*node.out(0)->shape)[0] = rows;
}

void InferReduceScatter(Node& node) {
  int64_t ranks = RanksOf(node);
  CheckReduced(node);
  SameAs(node.in(0), node.out(0));
  if (!node.in(0)->concrete()) return;
  int64_t n = FirstAxis(node);
  Check(n % ranks == 0, "[", node.Where(), "] expected a first axis that ",
        ranks, " ranks divide, got ", TypeText(*node.in(0)));
  (*node.out(0)->shape)[0] = n / ranks;
}

void InferBroadcast(Node& node) {
  int64_t ranks = RanksOf(node), root = node.Int("root", 0);
  Check(root >= 0 && root < ranks, "[", node.Where(),
        "] expected a rank below ", ranks, " as attribute \"root\", got ",
        root);
  SameAs(node.in(0), node.out(0));
}

}  // namespace

std::vector<OpDefinition> CollectiveOps() {
  const AttributeDefinition group = {"group", AttributeKind::kString},
                            ranks = {"ranks", AttributeKind::kInt},
                            bucket = {"bucket", AttributeKind::kInt};
  const auto facts = [](Collective collective) {
    return LateOp(OpKind::kCollective, {.collective = collective});
  };
  return {
      {"AllReduce",
       {group, ranks, {"reduction", AttributeKind::kString}, bucket},
       kOneRank,
       InferAllReduce,
       facts(Collective::kAllReduce)},
      {"AllGather",
       {group, ranks, {"rows", AttributeKind::kInt}, bucket},
       kOneRank,
       InferAllGather,
       facts(Collective::kAllGather)},
      {"ReduceScatter",
       {group, ranks, bucket},
       kOneRank,
       InferReduceScatter,
       facts(Collective::kReduceScatter)},
      {"CopyToRanks",
       {group, ranks},
       kOneRank,
       [](Node& node) { SameAs(node.in(0), node.out(0)); },
       LateOp(OpKind::kOther)},
      {"Broadcast",
       {group, ranks, {"root", AttributeKind::kInt}},
       kOneRank,
       InferBroadcast,
       facts(Collective::kBroadcast)},
  };
}

}  // namespace onnx_fp8
