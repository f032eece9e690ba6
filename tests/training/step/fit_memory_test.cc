// SPDX-License-Identifier: Apache-2.0
#include "training/step/fit_memory.h"

#include <gtest/gtest.h>

#include "graph/passes/recompute.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

TEST(FitMemory, NamesChooseOnlyNodesThatMayRunAgain) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[1]
input g: float[1]
param w: float[1]
mask: float[1] = Neg(x)
a: float[1] = Mul(x, w)
d: float[1] = Mul(g, a)
e: float[1] = Mul(d, mask)
output e
)");
  RecomputeProblem problem;
  problem.graph = graph.get();
  problem.forward = StepHalves(*graph, graph->Find("g")).forward;
  problem.may = NodesThatMayRunAgain(problem.forward, true);
  const RecomputeChoice choice = ChooserOf({.again = {"a", "mask"}})(problem);
  EXPECT_EQ(choice.nodes,
            std::unordered_set<Node*>{graph->Find("a")->producer});
}

}  // namespace
}  // namespace onnx_fp8
