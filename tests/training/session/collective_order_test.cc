// SPDX-License-Identifier: Apache-2.0
#include "training/session/collective_order.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/onnx/verify.h"
#include "graph/op_facts.h"
#include "tests/graph/parse.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

// Sums of these inputs in this order, each behind a node of its own.
std::string SumsOf(const std::vector<std::string>& inputs, int64_t bucket) {
  std::string text, nodes;
  for (const std::string& x : inputs) {
    text += Concat("input ", x, ": float[2]\n");
    const std::string in = bucket > 0 ? Concat("bucket=", bucket, ", ") : "";
    nodes += Concat("n", x, ": float[2] = Neg(", x, ")\ns", x,
                    ": float[2] = onnx_fp8.AllReduce<", in,
                    "group=\"dp\", ranks=2, reduction=\"sum\">(n", x, ")\n");
  }
  for (const std::string& x : inputs) nodes += "output s" + x + "\n";
  return text + nodes;
}

// "sa sb/1": results and buckets of the collectives.
std::string OrderIn(const Graph& graph) {
  std::string text;
  for (const Node& node : graph.nodes()) {
    if (!IsCollective(node)) continue;
    if (!text.empty()) text += " ";
    text += node.out(0)->name;
    if (node.Has("bucket")) text += Concat("/", node.Int("bucket", 0));
  }
  return text;
}

struct Meeting {
  std::string first, second;  // graphs of the two ranks
  bool second_is_new = true;
  std::string want;  // order of the second rank
};

TEST(CollectiveOrder, OthersFollowTheFirstRank) {
  const std::string abc = SumsOf({"a", "b", "c"}, 1);
  const std::vector<Meeting> meetings = {
      {abc, SumsOf({"c", "a", "b"}, 0), true, "sa/1 sb/1 sc/1"},
      // A plan stays as it is, and the first order stays the common one.
      {SumsOf({"c", "b", "a"}, 2), abc, false, "sa/1 sb/1 sc/1"},
      {abc, SumsOf({"b", "c", "a"}, 3), true, "sa/1 sb/1 sc/1"},
      // Another set has another order.
      {SumsOf({"c", "a"}, 0), SumsOf({"a", "c"}, 4), true, "sc sa"},
      // Ranks that differ are compared later.
      {abc, SumsOf({"b", "a"}, 0), true, "sb sa"}};
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    CollectiveOrder order(&ranks);
    for (const Meeting& m : meetings) {
      const bool first = world.rank() == 0;
      const auto graph = ParseGraph(first ? m.first : m.second);
      order.Agree(StepKind::kTrain, *graph, first || m.second_is_new);
      Verify(*graph);
      if (first) continue;
      EXPECT_EQ(OrderIn(*graph), m.want);
    }
  });
}

// Later plans with the same collectives may have others in their buckets.
TEST(CollectiveOrder, ANewOrderReplacesAForgottenOne) {
  RunRanks(2, [](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    CollectiveOrder order(&ranks);
    const bool first = world.rank() == 0;
    const auto agreed = [&](const std::string& graph_of_first) {
      const auto graph =
          ParseGraph(first ? graph_of_first : SumsOf({"b", "a"}, 0));
      order.Agree(StepKind::kTrain, *graph, true);
      Verify(*graph);
      return OrderIn(*graph);
    };
    EXPECT_EQ(agreed(SumsOf({"a", "b"}, 1)), "sa/1 sb/1");
    EXPECT_EQ(agreed(SumsOf({"b", "a"}, 0)), "sa/1 sb/1");
    order.Forget();
    EXPECT_EQ(agreed(SumsOf({"b", "a"}, 0)), "sb sa");
  });
}

// Gathers take their buckets, too.
TEST(CollectiveOrder, GathersOfABucket) {
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    CollectiveOrder order(&ranks);
    const std::string inputs = "input a: float[2]\ninput b: float[2]\n";
    const std::string outputs = "output ga\noutput gb\noutput sa\n";
    const std::string sum =
        "sa: float[2] = onnx_fp8.AllReduce<group=\"dp\", ranks=2, "
        "reduction=\"sum\">(a)\n";
    const auto gather = [](const std::string& x, const std::string& bucket) {
      return Concat("g", x, ": float[4] = onnx_fp8.AllGather<", bucket,
                    "group=\"dp\", ranks=2>(", x, ")\n");
    };
    const std::string nodes =
        world.rank() == 0
            ? gather("a", "bucket=1, ") + gather("b", "bucket=1, ") + sum
            : sum + gather("b", "") + gather("a", "");
    const auto graph = ParseGraph(inputs + nodes + outputs);
    order.Agree(StepKind::kTrain, *graph, true);
    Verify(*graph);
    EXPECT_EQ(OrderIn(*graph), "ga/1 gb/1 sa");
  });
}

// A bucket is one call: it waits for all operands.
TEST(CollectiveOrder, OperandsOfABucketComeFirst) {
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    CollectiveOrder order(&ranks);
    const auto graph = ParseGraph(SumsOf({"a", "b"}, world.rank() == 0));
    order.Agree(StepKind::kTrain, *graph, true);
    Verify(*graph);
    std::vector<std::string> results;
    for (const Node& node : graph->nodes()) {
      results.push_back(node.out(0)->name);
    }
    EXPECT_EQ(results, (std::vector<std::string>{"na", "nb", "sa", "sb"}));
  });
}

// A collective of another group would make two calls of the bucket.
TEST(CollectiveOrder, ABucketStaysTogether) {
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    CollectiveOrder order(&ranks);
    std::string text = "input a: float[2]\n";
    const auto gather = [&](const std::string& y, int bucket) {
      const std::string in = bucket > 0 ? Concat("bucket=", bucket, ", ") : "";
      text += Concat(y, ": float[4] = onnx_fp8.AllGather<", in,
                     "group=\"dp\", ranks=2>(a)\noutput ", y, "\n");
    };
    const auto other = [&] {
      text +=
          "t: float[2] = onnx_fp8.AllReduce<group=\"tp\", ranks=2, "
          "reduction=\"sum\">(a)\noutput t\n";
    };
    if (world.rank() == 0) {
      for (const char* y : {"x", "y", "z"}) gather(y, 1);
      other();
    } else {
      gather("x", 0);
      other();
      gather("y", 0);
      gather("z", 0);
    }
    const auto graph = ParseGraph(text);
    order.Agree(StepKind::kTrain, *graph, true);
    Verify(*graph);
    EXPECT_EQ(OrderIn(*graph), "x/1 y/1 z/1 t");
  });
}

TEST(CollectiveOrder, NobodyAsksTheOthersBeforeAnEvaluation) {
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    const CollectiveOrder order(&ranks);
    EXPECT_TRUE(order.IsNeeded(StepKind::kMicro));
    EXPECT_TRUE(order.IsNeeded(StepKind::kApply));
    EXPECT_FALSE(order.IsNeeded(StepKind::kEval));
  });
  EXPECT_FALSE(CollectiveOrder(nullptr).IsNeeded(StepKind::kTrain));
}

}  // namespace
}  // namespace onnx_fp8
