// SPDX-License-Identifier: Apache-2.0
//
// Steps of a device that read state in the host's memory run beside the steps
// that follow, in a queue of their own.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/plan/plan.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The graph of the text; its moments lie in the host's memory.
std::unique_ptr<Graph> Offloaded(const std::string& text) {
  auto graph = ParseGraph(text);
  for (Value* value : graph->Initializers()) {
    value->on_host = value->role == Role::kMoment;
  }
  return graph;
}

Plan OnDevice(const Graph& graph) {
  Plan plan = MakePlan(graph, CpuKernels(), Device::kProvider);
  CheckPlan(plan, graph, CpuKernels());
  return plan;
}

Step& StepWith(Plan& plan, const std::string& result) {
  for (Step& step : plan.steps) {
    if (step.node->out(0)->name == result) return step;
  }
  throw std::out_of_range(result);
}

size_t Awaited(Plan& plan, const std::string& result) {
  return StepWith(plan, result).AwaitsOf(Side::kUpdates);
}

std::string ComplaintOf(const Plan& plan, const Graph& graph) {
  try {
    CheckPlan(plan, graph, CpuKernels());
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// The counter is overwritten at the end, and the gradient by nobody.
constexpr char kOffloaded[] = R"(
input x: float[64]
moment m: float[64]
state c: float[64]
g: float[64] = Neg(x)
scaled: float[64] = Mul(g, c)
next: float[64] = Add(m, c)
h: float[64] = Exp(x)
more: float[64] = Add(c, h)
y: float[64] = Abs(scaled)
output y
update m = next
update c = more
)";

TEST(UpdateFlights, AwaitedBeforeAnOperandIsOverwritten) {
  const auto graph = Offloaded(kOffloaded);
  Plan plan = OnDevice(*graph);
  EXPECT_TRUE(plan.after.empty());
  EXPECT_EQ(StepWith(plan, "next").side, Side::kUpdates);
  EXPECT_TRUE(StepWith(plan, "next").beside);
  EXPECT_EQ(Awaited(plan, "h"), 0u);
  EXPECT_EQ(Awaited(plan, "more"), 1u);
  EXPECT_EQ(StepWith(plan, "more").side, std::nullopt);
}

TEST(UpdateFlights, NeedADeviceAndStateInTheHostsMemory) {
  const auto graph = Offloaded(kOffloaded), here = ParseGraph(kOffloaded);
  Plan on_host = MakePlan(*graph, CpuKernels());
  EXPECT_EQ(StepWith(on_host, "next").side, std::nullopt);
  Plan plan = OnDevice(*here);
  EXPECT_EQ(StepWith(plan, "next").side, std::nullopt);
  EXPECT_EQ(Awaited(plan, "more"), 0u);
}

// The check of plans knows nothing of the planner.
TEST(UpdateFlights, CheckPlanFindsAMissingWait) {
  const auto graph = Offloaded(kOffloaded);
  Plan plan = OnDevice(*graph);
  StepWith(plan, "more").AwaitsOf(Side::kUpdates) = 0;
  EXPECT_EQ(ComplaintOf(plan, *graph),
            "[Add -> more] overwrites an operand of [Add -> next], which is "
            "not awaited");
  plan = OnDevice(*graph);
  StepWith(plan, "h").AwaitsOf(Side::kUpdates) = 2;
  EXPECT_EQ(ComplaintOf(plan, *graph),
            "[Exp -> h] awaits a call that has not begun");
}

// What follows from updates alone needs no wait: `half` runs behind `next`. A
// collective has another queue, and what it needs runs in its turn.
TEST(UpdateFlights, FollowersStayInTheQueue) {
  const auto graph = Offloaded(R"(
input x: float[64]
moment m: float[64]
moment n: float[64]
state w: bfloat16[64]
g: float[64] = Neg(x)
next: float[64] = Add(m, g)
half: bfloat16[64] = Cast<to=16>(next)
h: float[64] = Exp(x)
other: float[64] = Add(n, h)
i: float[64] = Sin(x)
part: float[64] = Neg(other)
all: float[128] = onnx_fp8.AllGather<group="dp", ranks=2>(part)
y: float[128] = Abs(all)
output y
output i
update m = next
update n = other
update w = half
)");
  Plan plan = OnDevice(*graph);
  for (const char* name : {"next", "half", "other"}) {
    EXPECT_EQ(StepWith(plan, name).side, Side::kUpdates) << name;
    EXPECT_EQ(Awaited(plan, name), 0u) << name;
  }
  EXPECT_TRUE(StepWith(plan, "half").beside);
  EXPECT_EQ(StepWith(plan, "part").side, std::nullopt);
  EXPECT_EQ(Awaited(plan, "part"), 3u);
  EXPECT_EQ(StepWith(plan, "all").side, Side::kCollectives);
}

// Two updates are under way, and a third gradient is there: no more of them
// keep memory.
TEST(UpdateFlights, AreTwoAtMost) {
  std::string text = "input x: float[64]\n", nodes, updates;
  for (int i = 0; i < 6; ++i) {
    text += Concat("moment m", i, ": float[64]\n");
    nodes += Concat("g", i, ": float[64] = Neg(x)\nnext", i,
                    ": float[64] = Add(m", i, ", g", i, ")\n");
    updates += Concat("update m", i, " = next", i, "\n");
  }
  text += nodes + "y: float[64] = Exp(x)\noutput y\n" + updates;
  const auto graph = Offloaded(text), here = ParseGraph(text);
  Plan plan = OnDevice(*graph);
  EXPECT_EQ(Awaited(plan, "next1"), 0u);
  EXPECT_EQ(Awaited(plan, "next2"), 1u);
  EXPECT_EQ(Awaited(plan, "next4"), 3u);
  EXPECT_EQ(plan.live_bytes, 3u * 256);
  EXPECT_EQ(OnDevice(*here).live_bytes, 256u);
}

// The first update is awaited with what follows from it.
TEST(UpdateFlights, AreTwoWithTheirFollowers) {
  std::string text = "input x: float[64]\n", nodes, updates;
  for (int i = 0; i < 4; ++i) {
    text +=
        Concat("moment m", i, ": float[64]\nstate w", i, ": bfloat16[64]\n");
    nodes += Concat("g", i, ": float[64] = Neg(x)\nnext", i,
                    ": float[64] = Add(m", i, ", g", i, ")\nhalf", i,
                    ": bfloat16[64] = Cast<to=16>(next", i, ")\n");
    updates += Concat("update m", i, " = next", i, "\nupdate w", i, " = half",
                      i, "\n");
  }
  text += nodes + "y: float[64] = Exp(x)\noutput y\n" + updates;
  const auto graph = Offloaded(text);
  Plan plan = OnDevice(*graph);
  EXPECT_EQ(Awaited(plan, "half1"), 0u);
  EXPECT_EQ(Awaited(plan, "next2"), 2u);
  EXPECT_EQ(Awaited(plan, "next3"), 4u);
  EXPECT_EQ(Awaited(plan, "y"), 0u);
}

}  // namespace
}  // namespace onnx_fp8
