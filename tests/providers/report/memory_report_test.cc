// SPDX-License-Identifier: Apache-2.0
#include "providers/report/memory_report.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

void Nothing(KernelContext&) {}

// Ops with any number of operands; Near works in place on its first.
const KernelRegistry& Kernels() {
  static const KernelRegistry kernels = [] {
    KernelRegistry r;
    r.Add("View", nullptr, {.view = true});
    r.Add("Op", Nothing);
    r.Add("Gather", Nothing);
    r.Add("Near", Nothing, {.in_place = {{0, 0}}});
    r.Add("Work", Nothing,
          {.workspace = [](KernelContext&) { return size_t{1000}; }});
    r.Add("QuantizeWith", Nothing, {}, kDomain);
    r.Add("UpdateScale", Nothing, {}, kDomain);
    r.Add("Update", Nothing, {.in_place = {{0, 0}, {2, 1}}});
    return r;
  }();
  return kernels;
}

struct Reported {
  explicit Reported(const std::string& text, GradientNames names = {})
      : graph(ParseGraph(text)),
        plan(MakePlan(*graph, Kernels())),
        report(MakeMemoryReport(plan, *graph, names)) {
    std::vector<MemoryKind> list = TenantKinds(plan, *graph, names);
    for (size_t i = 0; i < list.size(); ++i) {
      kinds[plan.tenants[i].value->name] = list[i];
    }
  }
  const LiveValue& Live(const std::string& name) const {
    for (const LiveValue& value : report.live) {
      if (value.name == name) return value;
    }
    throw std::runtime_error(name + " is not alive");
  }

  std::unique_ptr<Graph> graph;
  Plan plan;
  MemoryReport report;
  std::map<std::string, MemoryKind> kinds;  // kinds of the values in the arena
};

TEST(MemoryReport, NamesWorkspaces) {
  Reported r(R"(
input x: float[32]
a: float[32] = Op(x)
b: float[32] = Work(a)
output b
)");
  EXPECT_EQ(r.report.node, "Work -> b");
  EXPECT_EQ(r.report.Total(MemoryKind::kWorkspace), 1000u);
  const LiveValue& workspace = r.Live("workspace of Work -> b");
  EXPECT_EQ(workspace.type, "uint8[1000]");
  EXPECT_EQ(workspace.node, "");
  EXPECT_EQ(r.report.in_arena_bytes, 1128u);
}

// One layer: bytes of the results, and of the values alive at each step:
//   a 128   a               128
//   t 128   a t             256
//   q  64   a t q           320
//   l  64   a q             192  (l has a buffer of its own)
//   dl 192  a q dl          384
//   da 128  a dl da         448
//   dw 256  da dw           384
//   update  dw              256
constexpr char kLayer[] = R"(
input x: float[32]
param w: float[64]
state m: float[64]
scale scale: float[4]
const c: float[16]
const seed: float[16]
a: float[32] = Op(x, w)  # /fc
t: float[32] = Op(a, c)
s: float[1] = Gather(scale)
q: float8e4m3fn[64] = onnx_fp8.QuantizeWith<fqn="fc.weight", operand="input">(t, s)
l: float[16] = Op(q)
dl: float[48] = Op<role="dgrad">(seed, q)
da: float[32] = Op(dl, a)
dw: float[8,8] = Op(da, x)
dv: float[64] = View(dw)
wn: float[64], mn: float[64] = Update(w, dv, m)
output l
update w = wn
update m = mn
)";

TEST(MemoryReport, WhatLivesAtThePeak) {
  Reported r(kLayer, {"seed", {"dv"}});
  EXPECT_EQ(r.report.steps, 9);
  EXPECT_EQ(r.report.step, 7);
  EXPECT_EQ(r.report.node, "Op -> da");
  EXPECT_EQ(r.report.live_bytes, 448u);
  EXPECT_EQ(r.report.in_arena_bytes, 448u);
  EXPECT_EQ(r.report.arena_bytes, r.plan.arena_bytes);
  EXPECT_EQ(r.report.Total(MemoryKind::kParameter), 256u);
  EXPECT_EQ(r.report.Total(MemoryKind::kOptimizerState), 256u);
  EXPECT_EQ(r.report.Total(MemoryKind::kFp8State), 16u);
  EXPECT_EQ(r.report.Total(MemoryKind::kConstant), 128u);
  EXPECT_EQ(r.report.Total(MemoryKind::kInput), 128u);
  EXPECT_EQ(r.report.Total(MemoryKind::kOutput), 64u);
  EXPECT_EQ(r.report.Total(MemoryKind::kSavedActivation), 128u);
  EXPECT_EQ(r.report.Total(MemoryKind::kActivationGradient), 320u);
  EXPECT_EQ(r.report.Total(MemoryKind::kFp8Copy), 0u);
  EXPECT_EQ(r.report.Total(MemoryKind::kParameterGradient), 0u);
  EXPECT_EQ(r.report.Total(MemoryKind::kTemporary), 0u);
}

TEST(MemoryReport, KindsFollowFromTheGraph) {
  using enum MemoryKind;
  Reported r(kLayer, {"seed", {"dv"}});
  EXPECT_EQ(r.kinds,
            (std::map<std::string, MemoryKind>{{"a", kSavedActivation},
                                               {"t", kTemporary},
                                               {"s", kTemporary},
                                               {"q", kFp8Copy},
                                               {"dl", kActivationGradient},
                                               {"da", kActivationGradient},
                                               {"dw", kParameterGradient}}));
  // Without a backward graph nothing is kept for it.
  Reported forward(kLayer);
  EXPECT_EQ(forward.kinds["a"], kTemporary);
  EXPECT_EQ(forward.kinds["dl"], kTemporary);
}

TEST(MemoryReport, WhoMadeAValueAndWhoReadsItLast) {
  Reported r(kLayer, {"seed", {"dv"}});
  EXPECT_EQ(r.Live("a").node, "Op /fc");
  EXPECT_EQ(r.Live("a").type, "float[32]");
  EXPECT_EQ(r.Live("a").last_reader, "Op -> da");
  EXPECT_EQ(r.Live("dl").role, "dgrad");
  EXPECT_EQ(r.Live("w").node, "");
  EXPECT_EQ(r.Live("w").last_reader, "Update -> wn");
  // Largest first.
  EXPECT_EQ(r.report.live[0].bytes, 256u);
  EXPECT_EQ(r.report.live[2].name, "dl");
}

TEST(MemoryReport, GradientsThatWaitForTheFirstUpdate) {
  Reported r(kLayer, {"seed", {"dv"}});
  EXPECT_EQ(r.report.gradients_held_bytes, 256u);
  // Two layers whose updates need only their own gradient: v's gradient is gone
  // when w's comes, and w's did not exist yet at the first update.
  Reported two(R"(
input x: float[32]
param v: float[32]
param w: float[16]
const seed: float[16]
dv: float[32] = Op(seed, x)
vn: float[32] = Near(v, dv)
dw: float[16] = Op(seed, x)
wn: float[16] = Near(w, dw)
update v = vn
update w = wn
)",
               {"seed", {"dv", "dw"}});
  EXPECT_EQ(two.report.gradients_held_bytes, 128u);
}

TEST(MemoryReport, APlaceThatIsHandedOnCountsOnce) {
  Reported r(R"(
input x: float[32]
a: float[32] = Op(x)
b: float[32] = Near(a)
c: float[8,4] = View(b)
d: float[8,4] = Near(c)
y: float[16] = Op(d, x)
output y
)");
  EXPECT_EQ(r.report.live_bytes, 128u);
  EXPECT_EQ(r.report.step, 1);
  ASSERT_EQ(r.plan.tenants.size(), 3u);  // a, b, d at one offset
  EXPECT_EQ(r.report.Total(MemoryKind::kTemporary), 128u);
}

TEST(MemoryReport, AgreesWithThePlannersOwnSum) {
  // 100 values whose sizes are no multiples of 64, alive for 1 to 9 steps.
  std::string text = "input x: float[5]\n";
  for (int i = 0; i < 100; ++i) {
    int other = std::max(i - 1 - i % 9, 0);
    text += "v" + std::to_string(i) + ": float[" +
            std::to_string(1 + i * 7 % 40) + "] = " + (i % 3 ? "Near" : "Op") +
            "(" +
            (i ? "v" + std::to_string(i - 1) + ", v" + std::to_string(other)
               : "x, x") +
            ")\n";
  }
  Reported r(text + "y: float[1] = Op(v99)\noutput y\n");
  EXPECT_EQ(r.report.live_bytes, r.plan.live_bytes);
  size_t rounded = 0;
  for (const LiveValue& value : r.report.live) {
    if (value.kind == MemoryKind::kTemporary) {
      rounded += (value.bytes + 63) / 64 * 64;
    }
  }
  EXPECT_EQ(rounded, r.plan.live_bytes);
}

TEST(MemoryReport, SumsOfMicroBatchesAreGradients) {
  Reported r(R"(
input x: float[32]
state sum: float[32]
state other: float[32]
d: float[32] = Op(x)
next: float[32] = Near(sum, d)
y: float[32] = Op(other)
output y
update sum = next
)",
             {"", {"sum", "d"}});
  EXPECT_EQ(r.report.Total(MemoryKind::kParameterGradient), 256u);
  EXPECT_EQ(r.report.Total(MemoryKind::kOptimizerState), 128u);
}

}  // namespace
}  // namespace onnx_fp8
