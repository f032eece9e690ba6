// SPDX-License-Identifier: Apache-2.0
//
// All ranks run collectives in one order, whatever the sizes of tensors say.
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "base/check.h"
#include "graph/op_facts.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/plan/plan.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::vector<std::string> CollectivesOf(const Plan& plan) {
  std::vector<std::string> names;
  for (const Step& step : plan.steps) {
    if (IsCollective(*step.node)) {
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

// ---- beside other steps

// A step by the name of its first result.
Step& StepOf(Plan& plan, const std::string& result) {
  for (Step& step : plan.steps) {
    if (step.node->out(0)->name == result) return step;
  }
  throw std::out_of_range(result);
}

std::string CheckError(const Plan& plan, const Graph& graph) {
  try {
    CheckPlan(plan, graph, CpuKernels());
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// `a` is awaited before its reader, `block` before the step that writes the
// state; nobody needs the last one before the end.
constexpr char kBeside[] = R"(
input x: float[64]
state m: float[32] = {0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15}
g: float[64] = Neg(x)
a: float[64] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(g)
h: float[64] = Abs(x)
i: float[64] = Exp(h)
y: float[64] = Add(a, i)
all: float[64] = onnx_fp8.AllGather<group="dp", ranks=2>(m)
k: float[64] = Exp(y)
n: float[32] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(k)
l: float[64] = Sin(k)
next: float[32] = Mul(m, m)
z: float[64] = Cos(l)
output z
output all
output n
update m = next
)";

TEST(CollectiveFlightsTest, AwaitedBeforeTheFirstThatNeedsIt) {
  const auto graph = ParseGraph(kBeside);
  Plan plan = MakePlan(*graph, CpuKernels());
  CheckPlan(plan, *graph, CpuKernels());
  for (const char* name : {"a", "all", "n"}) {
    EXPECT_TRUE(StepOf(plan, name).beside) << name;
  }
  EXPECT_EQ(StepOf(plan, "h").AwaitsOf(Side::kCollectives), 0u);
  EXPECT_EQ(StepOf(plan, "i").AwaitsOf(Side::kCollectives), 0u);
  EXPECT_EQ(StepOf(plan, "y").AwaitsOf(Side::kCollectives), 1u);
  EXPECT_EQ(StepOf(plan, "k").AwaitsOf(Side::kCollectives), 0u);
  EXPECT_EQ(StepOf(plan, "next").AwaitsOf(Side::kCollectives), 2u);
  EXPECT_EQ(StepOf(plan, "z").AwaitsOf(Side::kCollectives), 0u);
}

// A gathered value that replaces state takes no memory besides.
TEST(CollectiveFlightsTest, AResultIsWrittenIntoState) {
  const auto graph = ParseGraph(R"(
input x: float[64]
state m: float[128]
g: float[64] = Neg(x)
next: float[128] = onnx_fp8.AllGather<group="dp", ranks=2>(g)
old: float[128] = Exp(m)
y: float[64] = Abs(g)
output old
output y
update m = next
)");
  Plan plan = MakePlan(*graph, CpuKernels());
  CheckPlan(plan, *graph, CpuKernels());
  EXPECT_TRUE(plan.after.empty());
  EXPECT_EQ(plan.arena_bytes, 64 * sizeof(float));  // g
  const Step& gather = StepOf(plan, "next");
  EXPECT_EQ(plan.slots[Index(gather.outputs[0])].place, SlotPlace::kState);
  // The reader of the old value comes first, and nobody waits for the new one.
  EXPECT_EQ(plan.steps.back().node->out(0)->name, "y");
  EXPECT_TRUE(gather.beside);
}

// A bucket's nodes run where the first of them stands.
TEST(CollectiveFlightsTest, AResultOfABucketIsCopiedIntoState) {
  const auto graph = ParseGraph(R"(
input x: float[64]
state m: float[64]
a: float[64] = Neg(x)
b: float[64] = Abs(x)
s: float[64] = onnx_fp8.AllReduce<bucket=1, group="dp", ranks=2, reduction="sum">(a)
t: float[64] = onnx_fp8.AllReduce<bucket=1, group="dp", ranks=2, reduction="sum">(b)
old: float[64] = Exp(m)
output old
output s
update m = t
)");
  const Plan plan = MakePlan(*graph, CpuKernels());
  CheckPlan(plan, *graph, CpuKernels());
  EXPECT_EQ(plan.after.size(), 1u);
}

// The check of plans knows nothing of the planner.
TEST(CollectiveFlightsTest, CheckPlanFindsWhatIsNotAwaited) {
  const auto graph = ParseGraph(kBeside);
  Plan plan = MakePlan(*graph, CpuKernels());
  StepOf(plan, "y").AwaitsOf(Side::kCollectives) = 0;
  EXPECT_EQ(CheckError(plan, *graph),
            "[Add -> y] touches the result of [onnx_fp8.AllReduce -> a], which "
            "is not awaited");
  plan = MakePlan(*graph, CpuKernels());
  StepOf(plan, "next").AwaitsOf(Side::kCollectives) = 1;
  EXPECT_EQ(CheckError(plan, *graph),
            "[Mul -> next] overwrites an operand of [onnx_fp8.AllGather -> "
            "all], which is not awaited");
  plan = MakePlan(*graph, CpuKernels());
  StepOf(plan, "h").AwaitsOf(Side::kCollectives) = 2;
  EXPECT_EQ(CheckError(plan, *graph),
            "[Abs -> h] awaits a call that has not begun");
}

// The next step needs the result, so nothing would run beside.
TEST(CollectiveFlightsTest, NothingToHide) {
  const auto graph = ParseGraph(R"(
input x: float[64]
a: float[64] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(x)
y: float[64] = Neg(a)
b: float[64] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(y)
output b
)");
  Plan plan = MakePlan(*graph, CpuKernels());
  EXPECT_FALSE(StepOf(plan, "a").beside);
  EXPECT_FALSE(StepOf(plan, "b").beside);
}

// Nodes of a bucket are one call: it waits for all operands, and stays whole
// where one of them would free memory early.
TEST(CollectiveFlightsTest, Buckets) {
  const auto graph = ParseGraph(R"(
input x: float[64]
wide: float[64] = Neg(x)
other: float[64] = Abs(x)
b: float[32] = onnx_fp8.ReduceScatter<group="dp", ranks=2, bucket=1>(wide)
c: float[32] = onnx_fp8.ReduceScatter<group="dp", ranks=2, bucket=1>(other)
d: float[32] = onnx_fp8.ReduceScatter<group="dp", ranks=2, bucket=2>(x)
e: float[64] = Exp(other)
f: float[32] = Add(b, c)
output d
output e
output f
)");
  Plan plan = MakePlan(*graph, CpuKernels());
  CheckPlan(plan, *graph, CpuKernels());
  EXPECT_EQ(CollectivesOf(plan), (std::vector<std::string>{"b", "c", "d"}));
  EXPECT_EQ(StepOf(plan, "b").together, 2u);
  EXPECT_EQ(StepOf(plan, "d").together, 1u);
}

// A gather sends bytes, so a bucket of gathers may have several dtypes. It has
// one group.
TEST(CollectiveFlightsTest, BucketsOfGathers) {
  const auto graph = ParseGraph(R"(
input x: float[64]
input h: float16[64]
a: float[128] = onnx_fp8.AllGather<group="dp", ranks=2, bucket=1>(x)
b: float16[128] = onnx_fp8.AllGather<group="dp", ranks=2, bucket=1>(h)
c: float[128] = onnx_fp8.AllGather<group="tp", ranks=2, bucket=1>(x)
d: float[128] = onnx_fp8.AllGather<group="tp", ranks=2>(x)
output a
output b
output c
output d
)");
  Plan plan = MakePlan(*graph, CpuKernels());
  CheckPlan(plan, *graph, CpuKernels());
  EXPECT_EQ(CollectivesOf(plan),
            (std::vector<std::string>{"a", "b", "c", "d"}));
  EXPECT_EQ(StepOf(plan, "a").together, 2u);
  EXPECT_EQ(StepOf(plan, "c").together, 1u);
  EXPECT_EQ(StepOf(plan, "d").together, 1u);
}

// Operands stay where they are until a collective is done: `wide` does not end
// when the ReduceScatter begins. An all-reduce takes its operand's place.
TEST(CollectiveFlightsTest, OperandsKeepTheirMemory) {
  const auto graph = ParseGraph(R"(
input x: float[64]
wide: float[64] = Neg(x)
part: float[32] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(wide)
own: float[64] = Sin(x)
sum: float[64] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(own)
e: float[64] = Exp(x)
f: float[64] = Cos(e)
g: float[64] = Add(sum, f)
y: float[32] = Neg(part)
output g
output y
)");
  const Plan plan = MakePlan(*graph, CpuKernels());
  CheckPlan(plan, *graph, CpuKernels());
  std::map<std::string, Tenant> tenants;
  for (const Tenant& t : plan.tenants) tenants.emplace(t.value->name, t);
  const Tenant &wide = tenants.at("wide"), &own = tenants.at("own"),
               &sum = tenants.at("sum");
  const auto position = [&](const std::string& result) {
    for (size_t i = 0; i < plan.steps.size(); ++i) {
      if (plan.steps[i].node->out(0)->name == result) {
        return static_cast<int>(i);
      }
    }
    return -1;
  };
  EXPECT_EQ(wide.last, position("g"));
  EXPECT_EQ(own.last, position("sum"));
  EXPECT_EQ(own.at, sum.at);
}

// At most two of them keep operands that nobody else reads.
TEST(CollectiveFlightsTest, FewOperandsWait) {
  std::string text = "input x: float[64]\n", outputs;
  for (int i = 0; i < 6; ++i) {
    text += Concat("wide", i, ": float[64] = Neg(x)\npart", i,
                   ": float[32] = onnx_fp8.ReduceScatter<group=\"dp\", "
                   "ranks=2>(wide",
                   i, ")\n");
    outputs += Concat("output part", i, "\n");
  }
  const auto graph = ParseGraph(text + outputs);
  Plan plan = MakePlan(*graph, CpuKernels());
  CheckPlan(plan, *graph, CpuKernels());
  EXPECT_EQ(StepOf(plan, "part1").AwaitsOf(Side::kCollectives), 0u);
  EXPECT_EQ(StepOf(plan, "part2").AwaitsOf(Side::kCollectives), 1u);
  EXPECT_EQ(StepOf(plan, "part4").AwaitsOf(Side::kCollectives), 3u);
  EXPECT_EQ(plan.live_bytes, 3u * 256);
}

}  // namespace
}  // namespace onnx_fp8
