// SPDX-License-Identifier: Apache-2.0
#include "training/session/step_room.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"

namespace onnx_fp8 {
namespace {

TEST(StepRoom, TheRankWithTheLargestBatchDecides) {
  RunRanks(4, [](Communicator& world) {
    const MeshRanks ranks({.dp = 4}, world);
    PlanKey key{StepKind::kTrain};
    key.shapes = {{"x", {world.rank() % 2, 3}}, {"labels", {2}}};
    const int largest = RankOfLargest(ranks, key);
    EXPECT_EQ(largest, 1);
    const MemoryFit fit = FitOfRank(ranks, largest, [&] {
      EXPECT_EQ(world.rank(), largest);
      return MemoryFit{.limit = 100,
                       .reserve = 5,
                       .before = 120,
                       .after = 90,
                       .again = {"a", "b"},
                       .as_blocks = true,
                       .ops = {"Relu"},
                       .blocks = 3,
                       .execution = {.joins_weights = false,
                                     .gathers_ahead = false,
                                     .attention_workspace = 1024},
                       .time_share = 0.25,
                       .hints = "less"};
    });
    EXPECT_EQ(fit.Complaint(),
              "expected a step that fits into 100 bytes (`memory`), got one "
              "that needs 90 bytes (5 of them in reserve) with all that helps "
              "computed again, and 120 without it; less");
    EXPECT_EQ(fit.Text(),
              "`memory`: a step needs 90 bytes of 100 bytes, 5 bytes of them "
              "in reserve for libraries; the backward makes its own codes of "
              "weights; no layer's parameters are gathered while another one "
              "runs; gradients of attention come in parts with 1.0 KiB of "
              "workspace; `recompute=blocks`: 2 nodes (Relu, in 3 blocks) run "
              "again in the backward: 30 bytes less, about 25 % more time");
    EXPECT_EQ(fit.again, (std::set<std::string>{"a", "b"}));
  });
}

TEST(StepRoom, AnErrorOfTheRankThatDecidesIsAllRanks) {
  RunRanks(3, [](Communicator& world) {
    const MeshRanks ranks({.dp = 3}, world);
    EXPECT_EQ(
        MostOfRanks(ranks, world.rank() == 1 ? Lacks::kPlan : Lacks::kNothing),
        Lacks::kPlan);
    try {
      FitOfRank(ranks, 1, []() -> MemoryFit { Fail("no plan"); });
      ADD_FAILURE() << "rank " << world.rank() << " goes on";
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "no plan");
    }
  });
}

TEST(StepRoom, ALimitCountsTheReserve) {
  EXPECT_NO_THROW(CheckLimit(60, {65, 5}, StepKind::kTrain));
  EXPECT_THROW(CheckLimit(60, {64, 5}, StepKind::kTrain), Error);
}

TEST(StepRoom, AnEvaluationIsRefusedInItsOwnWords) {
  try {
    CheckLimit(60, {59, 0}, StepKind::kEval);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "expected an evaluation that fits into 59 bytes (`memory`), "
                 "got one that needs 60 bytes; a smaller `val_batch_size` "
                 "needs less, or, without one, a smaller `batch_size`");
  }
}

// A plan of these sizes, under a key that no other one has.
PlannedStep PlannedWith(ExecutionProvider& provider, int64_t elements) {
  auto graph = std::make_shared<Graph>();
  graph->opset = 24;
  Value* x = graph->AddInput("x", DType::kFloat, Shape{elements});
  Value* y = graph->AddNode("Relu", {x}, {"y"})->out(0);
  y->dtype = DType::kFloat;
  y->shape = x->shape;
  graph->outputs = {y};
  PlannedStep planned;
  planned.key = {StepKind::kTrain};
  planned.key.shapes = {{"x", {elements}}};
  planned.fit = MemoryFit{.again = {std::to_string(elements)}};
  planned.executor = std::make_unique<Executor>(graph, provider);
  return planned;
}

// Each plan has a feed and a result, of 400, 200 and 100 bytes.
TEST(StepRoom, TheOldestPlansMakeRoom) {
  auto provider = MakeCpuProvider();
  PlanCache plans(10);
  plans.Keep(PlannedWith(*provider, 100));
  plans.Keep(PlannedWith(*provider, 50));
  const PlannedStep next = PlannedWith(*provider, 25);
  const StepMemorySum held(false);
  EXPECT_EQ(MemoryOf(held, plans.plans(), next).total(), 1400u);
  EXPECT_FALSE(MakeRoom(held, next, {1405, 5}, &plans));
  EXPECT_EQ(plans.plans().size(), 2u);
  EXPECT_TRUE(MakeRoom(held, next, {1404, 5}, &plans));
  ASSERT_EQ(plans.plans().size(), 1u);
  EXPECT_EQ(plans.plans().front().key.shapes.at("x"), Shape{50});
  // Its choice is kept.
  PlanKey key{StepKind::kTrain};
  key.shapes = {{"x", {100}}};
  ASSERT_TRUE(plans.DroppedFit(key));
  EXPECT_EQ(plans.DroppedFit(key)->again, std::set<std::string>{"100"});
  key.shapes = {{"x", {50}}};
  EXPECT_FALSE(plans.DroppedFit(key));
  EXPECT_TRUE(MakeRoom(held, next, {200, 0}, &plans));
  EXPECT_TRUE(plans.plans().empty());
}

TEST(StepRoom, StateAndRecordedResultsCount) {
  auto provider = MakeCpuProvider();
  const PlannedStep next = PlannedWith(*provider, 25);
  StepMemorySum held(true);
  held.AddState({{"w", Tensor::Zeros(DType::kFloat, {3})}});
  const StepMemory memory = MemoryOf(held, {}, next);
  EXPECT_EQ(memory.state, 12u);
  EXPECT_EQ(memory.others, 300u);  // the feed, and the result twice
}

}  // namespace
}  // namespace onnx_fp8
