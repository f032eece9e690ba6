// SPDX-License-Identifier: Apache-2.0
#include "training/session/step_room.h"

#include <gtest/gtest.h>

#include "base/check.h"
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
    MemoryFit fit = {.limit = 10, .before = 30, .after = 20};
    if (world.rank() == largest) {
      fit = {.limit = 100,
             .reserve = 5,
             .before = 120,
             .after = 90,
             .again = {"a", "b"},
             .ops = {"Relu"},
             .blocks = 3,
             .time_share = 0.25,
             .hints = "less"};
    }
    ShareFit(ranks, largest, &fit);
    EXPECT_EQ(fit.Complaint(),
              "expected a step that fits into 100 bytes (`memory`), got one "
              "that needs 90 bytes (5 of them in reserve) with all that helps "
              "computed again, and 120 without it; less");
    EXPECT_EQ(fit.Text(),
              "`memory`: a step needs 90 bytes of 100 bytes, 5 bytes of them "
              "in reserve for libraries; `recompute`: 2 nodes (Relu, in 3 "
              "blocks) run again in the backward: 30 bytes less, about 25 % "
              "more time");
    EXPECT_EQ(fit.again, (std::set<std::string>{"a", "b"}));
  });
}

TEST(StepRoom, ALimitCountsTheReserve) {
  const StepMemory steps = {.arena = 10, .state = 20, .others = 30};
  EXPECT_NO_THROW(CheckLimit(steps, {65, 5}));
  EXPECT_THROW(CheckLimit(steps, {64, 5}), Error);
}

}  // namespace
}  // namespace onnx_fp8
