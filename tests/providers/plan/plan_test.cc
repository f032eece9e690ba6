// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/plan.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "tests/graph/parse.h"
#include "tests/providers/toy.h"

namespace onnx_fp8 {
namespace {

// A plan that CheckPlan accepts, of a graph that lives as long as the plan.
struct Planned {
  explicit Planned(const std::string& text, Device device = Device::kHost)
      : graph(ParseGraph(text)),
        provider(MakeToyProvider()),
        plan(MakePlan(*graph, provider->Kernels(), device)) {
    CheckPlan(plan, *graph, provider->Kernels());
  }
  // Names of the first outputs of the steps, in order.
  std::string Order() const {
    std::string text;
    for (const Step& step : plan.steps) {
      text += (text.empty() ? "" : " ") + step.node->out(0)->name;
    }
    return text;
  }
  // "from>to" of the copies, by name.
  std::string Copies(const std::vector<Copy>& copies) const {
    std::string text;
    for (const Copy& copy : copies) {
      text += (text.empty() ? "" : " ") + At(copy.from).value->name + ">" +
              At(copy.to).value->name;
    }
    return text;
  }
  const Slot& At(int slot) const {
    return plan.slots[static_cast<size_t>(slot)];
  }

  std::unique_ptr<Graph> graph;
  std::unique_ptr<ExecutionProvider> provider;
  Plan plan;
};

std::string Complaint(const std::string& text, Device device = Device::kHost) {
  try {
    Planned planned(text, device);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

// Bytes: a, b and c 64 each, the workspace 100, which takes 128.
TEST(Plan, AWorkspaceLivesWhileItsStepRuns) {
  Planned p(R"(
input x: uint32[16]
a: uint32[16] = Work(x)
b: uint32[16] = Work(a)
c: uint32[16] = Hash(b)
d: uint32[16] = Hash(c)
output d
)");
  ASSERT_EQ(p.plan.workspaces.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const Slot& slot = p.At(p.plan.steps[i].workspace);
    EXPECT_EQ(slot.value, p.plan.workspaces[i].get());
    EXPECT_EQ(BytesOf(*slot.value), 100u);
  }
  EXPECT_EQ(p.plan.workspaces[0]->name, "workspace of Work -> a");
  EXPECT_EQ(p.plan.steps[2].workspace, -1);
  // The second step needs most: a, b and its workspace.
  EXPECT_EQ(p.plan.arena_bytes, 64u + 64u + 128u);
  EXPECT_EQ(p.plan.live_bytes, 256u);
}

// A constant that a kernel reads on the host lies in the graph's memory; the
// same constant as an operand of the arithmetic lies on the device.
TEST(Plan, AKernelGetsTheHostsCopyOfAConstant) {
  const std::string text = R"(
input x: uint32[2]
const n: uint32[2] = {1,2}
y: uint32[2] = Sized(x, n)
z: uint32[2] = Hash(y, n)
output z
)";
  Planned device(text, Device::kProvider), host(text);
  auto place = [](const Planned& p, size_t step) {
    return p.At(p.plan.steps[step].inputs[1]).place;
  };
  EXPECT_EQ(place(device, 0), SlotPlace::kHost);
  EXPECT_EQ(place(device, 1), SlotPlace::kConstant);
  EXPECT_EQ(place(host, 0), SlotPlace::kConstant);
  const std::string computed = R"(
input x: uint32[2]
n: uint32[2] = Hash(x)
y: uint32[2] = Sized(x, n)
output y
)";
  EXPECT_EQ(Complaint(computed), "");
  EXPECT_EQ(Complaint(computed, Device::kProvider),
            "[Sized -> y] expected a constant as operand 1, which its kernel "
            "reads on the host, got the computed value or input \"n\"");
}

// cuBLASLt takes it for granted.
TEST(Plan, ADevicesResultsBeginAtMultiplesOf256) {
  const std::string text = R"(
input x: uint32[2]
a: uint32[2] = Hash(x)
b: uint32[2] = Hash(x)
c: uint32[2] = Hash(a, b)
output c
)";
  Planned device(text, Device::kProvider), host(text);
  EXPECT_EQ(device.At(device.plan.steps[1].outputs[0]).at, 256u);
  EXPECT_EQ(host.At(host.plan.steps[1].outputs[0]).at, 64u);
  EXPECT_EQ(device.plan.arena_bytes, 512u);
  EXPECT_EQ(device.plan.naive_bytes, 512u);
  EXPECT_EQ(host.plan.arena_bytes, 128u);
}

TEST(Plan, DeadNodesAndViewsDoNotRun) {
  Planned p(R"(
input x: uint32[16]
a: uint32[16] = Hash(x)
b: uint32[4,4] = View(a)
dead: uint32[16] = NoSuchOp(a)
y: uint32[16] = Hash(b)
output y
)");
  EXPECT_EQ(p.Order(), "a y");
  EXPECT_EQ(p.plan.arena_bytes, 64u);
  EXPECT_EQ(p.At(p.plan.steps[1].inputs[0]).at, 0u);
  EXPECT_EQ(*p.At(p.plan.steps[1].inputs[0]).value->shape, (Shape{4, 4}));
}

TEST(Plan, AChainInPlaceNeedsOneBuffer) {
  Planned p(R"(
input x: uint32[100]
a: uint32[100] = Hash(x)
b: uint32[100] = Near(a, x)
v: uint32[10,10] = View(b)
c: uint32[100] = Near(x, v)
y: uint32[1] = Hash(c)
output y
)");
  EXPECT_EQ(p.plan.arena_bytes, 448u);
  EXPECT_EQ(p.plan.live_bytes, 448u);
  EXPECT_EQ(p.plan.naive_bytes, 3 * 448u);
}

TEST(Plan, NotInPlaceWhereTheOperandLivesOnOrIsReadTwice) {
  // Read later; read by an operand that is not paired; of another width.
  EXPECT_EQ(Planned(R"(
input x: uint32[16]
a: uint32[16] = Hash(x)
b: uint32[16] = Near(a)
y: uint32[1] = Hash(a, b)
output y
)")
                .plan.arena_bytes,
            128u);
  EXPECT_EQ(Planned(R"(
input x: uint32[16]
a: uint32[16] = Hash(x)
b: uint32[16] = Near(a, x, a)
y: uint32[1] = Hash(b)
output y
)")
                .plan.arena_bytes,
            128u);
  EXPECT_EQ(Planned(R"(
input x: uint32[16]
a: uint32[16] = Hash(x)
b: uint64[8] = Near(a)
y: uint32[1] = Hash(b)
output y
)")
                .plan.arena_bytes,
            128u);
}

TEST(Plan, WhatIsSmallerReplacesWhatItIsMadeOf) {
  // w quantizes the activation a for a GEMM that comes last. Then nothing else
  // reads a, neither directly nor through its view.
  const std::string text = R"(
input x: uint32[64]
a: uint32[64] = Hash(x)
v: uint32[8,8] = View(a)
q: uint32[16] = Hash(v)
b: uint32[64] = Hash(q)
c: uint32[64] = Hash(b)
w: uint32[16] = Hash(a)
y: uint32[1] = Hash(c, w, q)
)";
  Planned p(text + "output y\n");
  EXPECT_EQ(p.Order(), "a q w b c y");
  EXPECT_EQ(p.plan.live_bytes, 640u);  // q, w, b, c
  // An output of the graph stays alive anyway; an output with its own buffer
  // takes no place.
  EXPECT_EQ(Planned(text + "output y\noutput a\n").Order(), "a q b c w y");
  EXPECT_EQ(Planned(text + "output y\noutput w\n").Order(), "a q b c w y");
}

TEST(Plan, ReadersOfOldStateRunBeforeItsWriter) {
  Planned p(R"(
input x: uint32[16]
state m: uint32[16]
m2: uint32[16] = Near(m, x)
v: uint32[4,4] = View(m)
y: uint32[1] = Hash(v)
z: uint32[1] = Hash(m2)
output y
output z
update m = m2
)");
  EXPECT_EQ(p.Order(), "y m2 z");
  EXPECT_TRUE(p.plan.after.empty());
  EXPECT_EQ(p.plan.first_write, 1u);
  EXPECT_EQ(p.plan.arena_bytes, 0u);
}

TEST(Plan, AWriterThatDoesNotReadTheStateWritesItTooOrKeepsItsView) {
  Planned p(R"(
input x: uint32[16]
state m: uint32[16]
n: uint32[4,4] = Hash(x)
m2: uint32[16] = View(n)
y: uint32[1] = Hash(m)
output y
update m = m2
)");
  EXPECT_EQ(p.Order(), "y n");
  EXPECT_TRUE(p.plan.after.empty());
}

TEST(Plan, StateIsCopiedWhereItsWriterMayNotWorkInPlace) {
  Planned p(R"(
input x: uint32[16]
state m: uint32[16]
m2: uint32[16] = Hash(m)
y: uint32[1] = Hash(x)
output y
update m = m2
)");
  EXPECT_EQ(p.Copies(p.plan.after), "m2>m");
  EXPECT_EQ(p.plan.first_write, p.plan.steps.size());
}

TEST(Plan, StateIsCopiedWhereAReaderOfTheOldValueNeedsTheNewOne) {
  Planned p(R"(
state m: uint32[16]
state n: uint32[32]
m2: uint32[16] = Near(m)
n2: uint32[32] = Near(n)
y: uint32[1] = Hash(m, n2)
z: uint32[1] = Hash(n, m2)
output y
output z
update m = m2
update n = n2
)");
  // Both in one cycle: the smaller one is copied.
  EXPECT_EQ(p.Copies(p.plan.after), "m2>m");
}

TEST(Plan, SwappedStatesAreAssignedAtOnce) {
  Planned p(R"(
state a: uint32[16]
state b: uint32[16]
state c: uint32[16]
input x: uint32[16]
va: uint32[16] = View(a)
update a = b
update b = va
update c = x
)");
  EXPECT_TRUE(p.plan.steps.empty());
  EXPECT_EQ(p.Copies(p.plan.before), "b>b a>a");
  EXPECT_EQ(p.Copies(p.plan.after), "b>a a>b x>c");
  EXPECT_EQ(p.plan.arena_bytes, 128u);
}

TEST(Plan, OneValueForTwoStatesAndForAnOutput) {
  Planned p(R"(
input x: uint32[16]
state a: uint32[16]
state b: uint32[16]
state c: uint32[16]
n: uint32[16] = Hash(x)
m: uint32[16] = Hash(x)
output m
update a = n
update b = n
update c = m
)");
  EXPECT_EQ(p.Copies(p.plan.after), "n>b m>c");
}

TEST(Plan, StateBoundToItselfStaysAsItIs) {
  Planned p(R"(
state a: uint32[16]
state b: uint32[16]
v: uint32[16] = View(b)
y: uint32[1] = Hash(a, v)
output y
update a = a
update b = v
)");
  EXPECT_TRUE(p.plan.after.empty());
  EXPECT_EQ(p.plan.bound, (std::vector<bool>{false, false}));
}

TEST(Plan, OutputsOfAllKinds) {
  Planned p(R"(
input x: uint32[16]
const c: uint32[2]
state s: uint32[16]
vx: uint32[4,4] = View(x)
vs: uint32[4,4] = View(s)
h: uint32[16] = Hash(x)
vh: uint32[4,4] = View(h)
s2: uint32[16] = Near(s)
output x
output vx
output c
output vs
output vh
output h
update s = s2
)");
  EXPECT_EQ(p.Copies(p.plan.before), "x>x c>c s>s");
  EXPECT_EQ(p.plan.fetched.size(), 4u);
  EXPECT_EQ(p.plan.arena_bytes, 0u);
  EXPECT_TRUE(p.plan.after.empty());
}

TEST(Plan, InitializersWithARoleAreState) {
  Planned p(R"(
const c: uint32[2]
param w: uint32[2]
frozen f: uint32[2]
input const lr: uint32[2]
input state s: uint32[2]
y: uint32[2] = Hash(c, w, f, lr, s)
output y
)");
  EXPECT_EQ(p.plan.constants.size(), 1u);
  EXPECT_EQ(p.plan.states.size(), 3u);
  EXPECT_EQ(p.plan.feeds.size(), 1u);
}

TEST(Plan, OneErrorForAllMissingKernels) {
  EXPECT_EQ(Complaint(R"(
input x: uint32[16]
a: uint32[16] = Foo(x)  # first
b: uint32[16] = Foo(a)  # second
c: uint32[16] = com.x.Bar(b)
d: uint32[16] = Dead(b)
output c
)"),
            "expected a kernel for every op, got none for Foo: "
            "2 nodes, first [Foo first]; com.x.Bar: 1 node, [com.x.Bar -> c]");
}

TEST(Plan, ControlFlowHasNoKernel) {
  auto graph = ParseGraph("input x: uint32[16]");
  graph->outputs.push_back(
      graph->AddNode("Hash", {}, {"y"}, {{"body", std::make_shared<Graph>()}})
          ->out(0));
  EXPECT_THROW(MakePlan(*graph, MakeToyProvider()->Kernels()), Error);
}

TEST(Plan, RefusesGraphsThatItCannotPlan) {
  EXPECT_EQ(Complaint("input x: uint32[n]\ny: uint32[2] = Hash(x)\noutput y"),
            "[value x] expected a known dtype and shape, got uint32[?]");
  EXPECT_EQ(Complaint("y: uint32 = Hash()\noutput y"),
            "[value y] expected a known dtype and shape, got uint32 of unknown "
            "rank");
  EXPECT_EQ(Complaint("y: uint32[9000000000,9000000000] = Hash()\noutput y"),
            "expected a tensor of less than 2^63 elements, got shape "
            "[9000000000,9000000000]");
  EXPECT_EQ(Complaint("y: uint32[99999999999999] = Hash()\noutput y"),
            "[value y] expected a tensor that fits into memory, got shape "
            "[99999999999999]");
  EXPECT_EQ(Complaint("captured c: uint32\noutput c"),
            "[value c] expected a producer, got none");
  EXPECT_EQ(Complaint("input x: uint32[3]\ny: uint32[4] = View(x)\noutput y"),
            "[View -> y] expected an output of the input's dtype and size, got "
            "uint32[3] and uint32[4]");
  EXPECT_EQ(Complaint("y: uint32[4] = View()\noutput y"),
            "[View -> y] expected an input and an output, got none");
  std::string two =
      "state m: uint32[2]\na: uint32[2] = Hash(m)\n"
      "b: uint32[3] = Hash(m)\n";
  EXPECT_EQ(Complaint(two + "update m = a\nupdate m = a"),
            "[value m] is state that is bound twice");
  EXPECT_EQ(Complaint(two + "update m = b"),
            "[value m] expected a next value of the same dtype and shape, got "
            "\"b\"");
  EXPECT_EQ(Complaint(two + "update a = b"),
            "[value a] expected state that is an initializer");
}

TEST(Plan, RefusesCycles) {
  auto provider = MakeToyProvider();
  for (const char* op : {"Hash", "View"}) {
    auto graph = ParseGraph(
        "input x: uint32[2]\na: uint32[2] = Hash(x)\n"
        "b: uint32[2] = Hash(a)\noutput b");
    for (Node& node : graph->nodes()) node.op = op;
    graph->SetInput(graph->Find("a")->producer, 0, graph->Find("b"));
    EXPECT_THROW(MakePlan(*graph, provider->Kernels()), Error) << op;
  }
}

// CheckPlan must see that each change makes a good plan wrong.
TEST(CheckPlan, SeesWrongPlans) {
  constexpr char kText[] = R"(
input x: uint32[16]
state m: uint32[16]
a: uint32[16] = Hash(x)
b: uint32[16] = Hash(a)
y: uint32[16] = Hash(a, b, m)
m2: uint32[16] = Near(m, y)
output y
update m = m2
)";
  auto complaint = [&](void (*change)(Plan&)) -> std::string {
    Planned p(kText);
    change(p.plan);
    try {
      CheckPlan(p.plan, *p.graph, p.provider->Kernels());
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(complaint([](Plan&) {}), "");
  EXPECT_EQ(complaint([](Plan& p) {
              for (Slot& s : p.slots) {
                if (s.value->name == "b") s.at = 0;
              }
            }),
            "[Hash -> b] output 0 lies over input 0, which the kernel does not "
            "allow");
  EXPECT_EQ(complaint([](Plan& p) { std::swap(p.steps[0], p.steps[1]); }),
            "[Hash -> b] expected to read \"a\", got memory that holds "
            "nothing");
  EXPECT_EQ(complaint([](Plan& p) { std::swap(p.steps[2], p.steps[3]); }),
            "[Near -> m2] expected to read \"y\", got memory that holds "
            "nothing");
  EXPECT_EQ(complaint([](Plan& p) { p.arena_bytes = 64; }),
            "[Hash -> b] expected \"b\" in the arena of 64 bytes, got 64 to "
            "128");
  EXPECT_EQ(complaint([](Plan& p) { p.first_write = 4; }),
            "[Near -> m2] writes state before the step that is said to be "
            "first");
  EXPECT_EQ(complaint([](Plan& p) { p.steps.pop_back(); }),
            "[Near -> m2] expected a step, got none");
}

TEST(CheckPlan, SeesAWorkspaceOverOtherMemory) {
  constexpr char kText[] = R"(
input x: uint32[16]
a: uint32[32] = Hash(x)
b: uint32[16] = Work(x)
y: uint32[16] = Hash(a, b)
output y
)";
  auto complaint = [&](const char* under) -> std::string {
    Planned p(kText);
    for (Slot& s : p.plan.slots) {
      if (s.value->name != "workspace of Work -> b") continue;
      s.at = 0;
      for (const Slot& other : p.plan.slots) {
        if (other.value->name == under) s.at = other.at;
      }
    }
    try {
      CheckPlan(p.plan, *p.graph, p.provider->Kernels());
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(complaint("a"),
            "[Hash -> y] expected to read \"a\", got memory that holds "
            "nothing");
  EXPECT_EQ(complaint("b"),
            "[Work -> b] works in the memory of its operands or results");
}

TEST(CheckPlan, SeesAReaderAfterTheWriter) {
  Planned p(R"(
input x: uint32[16]
state m: uint32[16]
y: uint32[16] = Hash(m)
m2: uint32[16] = Near(m, x)
output y
update m = m2
)");
  std::swap(p.plan.steps[0], p.plan.steps[1]);
  p.plan.first_write = 0;
  try {
    CheckPlan(p.plan, *p.graph, p.provider->Kernels());
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[Hash -> y] expected to read \"m\", got memory "
                 "that holds m2");
  }
}

}  // namespace
}  // namespace onnx_fp8
