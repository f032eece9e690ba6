// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/run_together.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "providers/run/profile.h"
#include "tests/graph/parse.h"
#include "tests/providers/toy.h"

namespace onnx_fp8 {
namespace {

void KindA(std::span<KernelContext>) {}
void KindB(std::span<KernelContext> all) { all[0].Where(); }

TEST(RunTogether, StepsJoinTheFirstOneThatTheyCanFollow) {
  std::vector<int> order = {0, 1, 2, 3, 4, 5};
  std::vector<int> begins =
      RunTogether(order, {KindA, nullptr, KindA, KindA, KindB, KindA},
                  {{1, 3}, {0, 5}}, {});
  // 3 waits for 1, which is no such step, and 5 for 0, which is in the group.
  EXPECT_EQ(order, (std::vector<int>{0, 2, 1, 3, 5, 4}));
  EXPECT_EQ(begins, (std::vector<int>{0, 0, 2, 3, 3, 5}));
}

// The result of step 2 would live at step 1, where 100 bytes are in use.
TEST(RunTogether, AStepStaysIfItsResultDoesNotFit) {
  auto run = [](size_t at_the_end) {
    std::vector<int> order = {0, 1, 2, 3};
    RunTogether(order, {KindA, nullptr, KindA, nullptr}, {},
                {{-1, 1, 60}, {1, 1, 40}, {2, 3, 50}, {3, 3, at_the_end}});
    return order;
  };
  EXPECT_EQ(run(0), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(run(99), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(run(100), (std::vector<int>{0, 2, 1, 3}));
}

// Moving one result forward takes the room of the next one.
TEST(RunTogether, ResultsThatMoveFillTheRoom) {
  std::vector<int> order = {0, 1, 2, 3, 4};
  RunTogether(order, {KindA, nullptr, KindA, KindA, nullptr}, {},
              {{2, 3, 50}, {3, 4, 50}, {4, 4, 90}, {0, 1, 60}});
  EXPECT_EQ(order, (std::vector<int>{0, 2, 1, 3, 4}));
}

// Steps 2 and 3 need this workspace while they run, and 100 are in use at step
// 0. The most bytes in use are theirs.
TEST(RunTogether, OnlyLargeWorkspacesHoldAStepBack) {
  auto run = [](size_t bytes) {
    std::vector<int> order = {0, 1, 2, 3};
    RunTogether(order, {KindA, nullptr, KindA, KindA}, {},
                {{-1, 1, 60}, {0, 0, 40}, {2, 2, bytes}, {3, 3, bytes}});
    return order;
  };
  EXPECT_EQ(run(50), (std::vector<int>{0, 2, 3, 1}));
  constexpr size_t kMebibyte = 1 << 20;
  EXPECT_EQ(run(kMebibyte - 100), (std::vector<int>{0, 2, 3, 1}));
  EXPECT_EQ(run(kMebibyte - 99), (std::vector<int>{0, 2, 1, 3}));
}

class TogetherTest : public testing::Test {
 protected:
  void Run(const std::string& text, Profiler* profiler = nullptr) {
    graph_ = ParseGraph(text);
    executor_ = std::make_unique<Executor>(graph_, *provider_);
    executor_->set_profiler(profiler);
    TensorMap state;
    TensorMap feeds = {{"x", RandomTensor(DType::kUInt32, {4}, 1)},
                       {"z", RandomTensor(DType::kUInt32, {4, 4}, 2)}};
    executor_->Run(feeds, state);
  }

  std::unique_ptr<ExecutionProvider> provider_ = MakeToyProvider(true);
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(TogetherTest, TheProfileNamesAllNodes) {
  Profiler profiler;
  profiler.BeginStep();
  Run(R"(
input x: uint32[4]
input z: uint32[4,4]
a: uint32[4] = Near(x)
b: uint32[4,4] = Near(z)
output a
output b
)",
      &profiler);
  profiler.EndStep();
  EXPECT_EQ(executor_->plan().steps[0].together, 2u);
  EXPECT_EQ(profiler.size(), 2u);
  std::string trace = profiler.ChromeTrace();
  EXPECT_NE(trace.find("Near -> a"), std::string::npos) << trace;
  EXPECT_NE(trace.find("Near -> b"), std::string::npos) << trace;
}

TEST_F(TogetherTest, AnErrorNamesTheFirstNode) {
  try {
    Run(R"(
input x: uint32[4]
input z: uint32[4,4]
a: uint32[4] = Throw(x)
b: uint32[4,4] = Throw(z)
output a
output b
)");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "[Throw -> a, and 1 more] as asked");
  }
}

// Each workspace takes 128 bytes.
TEST_F(TogetherTest, WorkspacesOfAGroupLieApart) {
  Run(R"(
input x: uint32[4]
input z: uint32[4,4]
a: uint32[4] = Work(x)
b: uint32[4,4] = Work(z)
output a
output b
)");
  const Plan& plan = executor_->plan();
  CheckPlan(plan, *graph_, provider_->Kernels());
  EXPECT_EQ(plan.steps[0].together, 2u);
  EXPECT_EQ(plan.arena_bytes, 256u);
}

// The second one would write over what the first one reads.
TEST_F(TogetherTest, NobodyTakesThePlaceOfAnothersOperand) {
  Run(R"(
input x: uint32[4]
input z: uint32[4,4]
y: uint32[4] = Hash(x)
a: uint32[4] = Near(y)
b: uint32[4] = Near(y)
output z
c: uint32[4] = Hash(a, b)
output c
)");
  CheckPlan(executor_->plan(), *graph_, provider_->Kernels());
  EXPECT_EQ(executor_->plan().steps[1].together, 2u);
}

}  // namespace
}  // namespace onnx_fp8
