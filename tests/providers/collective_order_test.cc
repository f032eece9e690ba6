// SPDX-License-Identifier: Apache-2.0
//
// All ranks run collectives in one order, whatever the sizes of tensors say.
#include <gtest/gtest.h>

#include "graph/op_facts.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/plan.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::vector<std::string> CollectivesOf(const Plan& plan) {
  std::vector<std::string> names;
  for (const Step& step : plan.steps) {
    if (FactsOf(*step.node).kind == OpKind::kCollective) {
      names.push_back(step.node->out(0)->name);
    }
  }
  return names;
}

// The plan would like to free `wide` early.
TEST(CollectiveOrderTest, NodesThatFreeMemoryDoNotOvertake) {
  const auto graph = ParseGraph(R"(
input x: float[64]
wide: float[64] = Neg(x)
other: float[64] = Abs(x)
first: float[64] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(other)
small: float[32] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(wide)
y: float[32] = Neg(small)
output first
output y
)");
  EXPECT_EQ(CollectivesOf(MakePlan(*graph, CpuKernels())),
            (std::vector<std::string>{"first", "small"}));
}

// Nodes of a file may stand in any order.
TEST(CollectiveOrderTest, DataComesFirst) {
  const auto graph = ParseGraph(R"(
input x: float[2]
first: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
second: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="max">(first)
output second
)");
  EXPECT_EQ(CollectivesOf(MakePlan(*graph, CpuKernels())),
            (std::vector<std::string>{"first", "second"}));
}

// The flag may differ between ranks, so a collective runs in any case.
TEST(CollectiveOrderTest, BranchesDoNotGuard) {
  const auto graph = ParseGraph(R"(
input x: float[2]
input flag: bool[1]
dear: float[2] = Exp(x)
sum: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(dear)
later: float[2] = Exp(sum)
y: float[2] = Where(flag, later, x)
output y
)");
  const Plan plan = MakePlan(*graph, CpuKernels());
  for (const Step& step : plan.steps) {
    const bool guarded = step.node->out(0)->name == "later";
    EXPECT_EQ(step.guards.size(), guarded ? 1u : 0u) << step.node->Where();
  }
}

}  // namespace
}  // namespace onnx_fp8
