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

// A step on paper: an arena of 200 bytes, and 24 bytes of state, of which 16
// are moments.
PaperStep PlanOf(StepKind kind, Graph* graph) {
  PaperStep paper;
  paper.step.kind = kind;
  paper.step.graph = std::shared_ptr<Graph>(std::shared_ptr<void>(), graph);
  paper.arena = paper.plan.arena_bytes = 200;
  paper.state = 24;
  paper.moments = 16;
  return paper;
}

std::string ComplaintOf(const SessionOptions& options, PaperStep paper) {
  const MemoryFit fit =
      FitMemory({100, 0}, HardwareOf(Device::kHost), options,
                [&](const RecomputeChooser&) { return paper; });
  EXPECT_FALSE(fit.fits());
  return fit.Complaint();
}

TEST(FitMemory, HintsAtWhatTheOptionsLeave) {
  Graph graph;
  SessionOptions options;
  options.recompute = {"blocks"};
  EXPECT_EQ(ComplaintOf(options, PlanOf(StepKind::kTrain, &graph)),
            "expected a step that fits into 100 bytes (`memory`), got one that "
            "needs 224 bytes; `recompute=auto` looks for values to compute "
            "again, `moments=bfloat16` saves up to 8 bytes (half of the "
            "moments), `moments=fp8` saves up to 12 bytes (three quarters of "
            "them), half of the samples in `batch_size` saves up to 100 bytes "
            "(half of the arena), `shard=parameters` with two ranks saves up "
            "to 12 bytes (half of the state)");
  options.recompute = {};
  options.memory = "100";
  options.shard.what = Sharding::kParameters;
  PaperStep bfloat16 = PlanOf(StepKind::kMicro, &graph);
  bfloat16.moments = 0;
  EXPECT_EQ(ComplaintOf(options, bfloat16),
            "expected a step that fits into 100 bytes (`memory`), got one that "
            "needs 224 bytes; the step does not say where its backward begins, "
            "so nothing can be computed again, half of the samples in "
            "`batch_size` saves up to 100 bytes (half of the arena)");
  PaperStep file = PlanOf(StepKind::kTrain, &graph);
  file.is_in_file = true;
  EXPECT_EQ(ComplaintOf(options, file), ComplaintOf(options, bfloat16));
}

TEST(FitMemory, HintsAtWeightsInFewerBytes) {
  auto graph = ParseGraph(R"(graph "g" opset 24
param w: float[10,4]
param scalar: float[]
param half: bfloat16[8]
frozen f: float[8]
)");
  PaperStep paper = PlanOf(StepKind::kTrain, graph.get());
  for (const Value* value : graph->Initializers()) {
    paper.plan.states.push_back(value);
  }
  const std::string hint =
      "`master=split8` saves up to 40 bytes (a quarter of the trained "
      "weights), `master=bfloat16` saves up to 80 bytes (half of them)";
  EXPECT_NE(ComplaintOf({}, paper).find(hint), std::string::npos);
  paper.is_in_file = true;
  EXPECT_EQ(ComplaintOf({}, paper).find("master"), std::string::npos);
}

TEST(FitMemory, SaysThatAStepFitsAsItIs) {
  MemoryFit fit = {.limit = 100, .before = 80, .after = 80};
  EXPECT_EQ(fit.Text(),
            "`memory`: a step needs 80 bytes of 100 bytes; it fits as it is");
  fit.is_searched = false;  // something may run again: the user says so
  EXPECT_EQ(fit.Text(), "`memory`: a step needs 80 bytes of 100 bytes");
  fit = {.limit = 50, .before = 80, .after = 80};
  EXPECT_EQ(fit.Text(), "`memory`: a step needs 80 bytes of 50 bytes");
}

}  // namespace
}  // namespace onnx_fp8
