// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/gather_ahead.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "graph/onnx/verify.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();

// The nodes of the graph: results and buckets.
std::string OrderOf(const std::string& text, int64_t bytes = 0) {
  auto graph = ParseGraph(text);
  GatherAhead(*graph, bytes);
  Verify(*graph);
  std::string names;
  for (const Node& node : graph->nodes()) {
    names += (names.empty() ? "" : " ") + node.out(0)->name;
    if (node.Has("bucket")) {
      names += ":" + std::to_string(node.Int("bucket", 0));
    }
  }
  return names;
}

// Each gather starts before the layer before its own; what is gathered is
// prepared before. A bias that is gathered behind its weight joins its layer.
constexpr char kLayers[] = R"(
input x: float[4,4]
param p: float[2,4] = {1,2,3,4,5,6,7,8}
param q: float[2,4] = {1,2,3,4,5,6,7,8}
param r: float[2,4] = {1,2,3,4,5,6,7,8}
param s: float[2] = {1,2}
u: float[4,4] = Neg(x)
gp: float[4,4] = onnx_fp8.AllGather<group="dp", ranks=2>(p)
a: float[4,4] = MatMul(u, gp)
gq: float[4,4] = onnx_fp8.AllGather<group="dp", ranks=2>(q)
b: float[4,4] = MatMul(a, gq)
half: float[2,4] = Mul(r, r)
gr: float[4,4] = onnx_fp8.AllGather<group="dp", ranks=2>(half)
gs: float[4] = onnx_fp8.AllGather<group="dp", ranks=2>(s)
c: float[4,4] = Gemm(b, gr, gs)
gx: float[8,4] = onnx_fp8.AllGather<group="dp", ranks=2>(c)
output gx
)";

TEST(GatherAhead, OneLayerAhead) {
  EXPECT_EQ(OrderOf(kLayers), "gp u gq a half gr gs b c gx");
  // What one node reads is one call.
  EXPECT_EQ(OrderOf(kLayers, 1), "gp u gq a half gr:1 gs:1 b c gx");
}

// A small layer in between hides nothing: the gather of `b` starts before `a`.
TEST(GatherAhead, SmallLayersDoNotCount) {
  EXPECT_EQ(OrderOf(R"(
input x: float[4,4]
param p: float[2,4] = {1,2,3,4,5,6,7,8}
param n: float[2] = {1,2}
param q: float[2,4] = {1,2,3,4,5,6,7,8}
gp: float[4,4] = onnx_fp8.AllGather<group="dp", ranks=2>(p)
a: float[4,4] = MatMul(x, gp)
gn: float[4] = onnx_fp8.AllGather<group="dp", ranks=2>(n)
m: float[4,4] = Mul(a, gn)
gq: float[4,4] = onnx_fp8.AllGather<group="dp", ranks=2>(q)
b: float[4,4] = MatMul(m, gq)
output b
)"),
            "gp gn gq a m b");
}

// Two blocks of a product with (4, 8) and one with (8, 4), 256 bytes each: the
// gathers of a block are one call, which starts before the block before.
constexpr char kBlocks[] = R"(
input x: float[4,4]
param e: float[2,4] = {1,2,3,4,5,6,7,8}
param w: float[2,8]
param v: float[4,4]
ge: float[4,4] = onnx_fp8.AllGather<group="dp", ranks=2>(e)
a: float[4,4] = MatMul(x, ge)
gw0: float[4,8] = onnx_fp8.AllGather<group="dp", ranks=2>(w)
b0: float[4,8] = MatMul(a, gw0)
gv0: float[8,4] = onnx_fp8.AllGather<group="dp", ranks=2>(v)
c0: float[4,4] = MatMul(b0, gv0)
gw1: float[4,8] = onnx_fp8.AllGather<group="dp", ranks=2>(w)
b1: float[4,8] = MatMul(c0, gw1)
gv1: float[8,4] = onnx_fp8.AllGather<group="dp", ranks=2>(v)
c1: float[4,4] = MatMul(b1, gv1)
output c1
)";

TEST(GatherAhead, ABlockThatRepeatsIsOneCall) {
  EXPECT_EQ(OrderOf(kBlocks, kAnyBytes),
            "ge gw0:1 gv0:1 a gw1:2 gv1:2 b0 c0 b1 c1");
  EXPECT_EQ(OrderOf(kBlocks, 256), OrderOf(kBlocks, kAnyBytes));
  const char* alone = "ge gw0 a gv0 b0 gw1 c0 gv1 b1 c1";
  EXPECT_EQ(OrderOf(kBlocks, 255), alone);
  EXPECT_EQ(OrderOf(kBlocks, 0), alone);
}

// A call has one group, and a number that no call of sums has.
TEST(GatherAhead, GroupsOfABucket) {
  EXPECT_EQ(OrderOf(R"(
input x: float[4]
param a: float[2]
param b: float[2]
param c: float[2]
s: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum", bucket=7>(x)
t: float[4] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum", bucket=7>(x)
ga: float[4] = onnx_fp8.AllGather<group="dp", ranks=2>(a)
gb: float[4] = onnx_fp8.AllGather<group="tp", ranks=2>(b)
gc: float[4] = onnx_fp8.AllGather<group="dp", ranks=2>(c)
y: float[4] = Sum(ga, gb, gc, s, t)
output y
)",
                    kAnyBytes),
            "ga:8 gc:8 gb s:7 t:7 y");
}

// The gathers of the first layer stand behind what one of them needs.
TEST(GatherAhead, OperandsOfTheFirstLayer) {
  EXPECT_EQ(OrderOf(R"(
input x: float[4]
param a: float[2]
param b: float[2]
square: float[2] = Mul(b, b)
sum: float[2] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="sum">(square)
u: float[4] = Neg(x)
ga: float[4] = onnx_fp8.AllGather<group="dp", ranks=2>(a)
gb: float[4] = onnx_fp8.AllGather<group="dp", ranks=2>(sum)
y: float[4] = Sum(u, ga, gb)
output y
)",
                    kAnyBytes),
            "square sum ga:1 gb:1 u y");
}

// What is gathered from gathered values waits for them, so it moves nowhere.
TEST(GatherAhead, GathersOfGatheredValues) {
  EXPECT_EQ(OrderOf(R"(
input x: float[8]
param a: float[2]
ga: float[4] = onnx_fp8.AllGather<group="dp", ranks=2>(a)
half: float[4] = Mul(ga, ga)
u: float[8] = Neg(x)
gh: float[8] = onnx_fp8.AllGather<group="dp", ranks=2>(half)
y: float[8] = Add(u, gh)
output y
)",
                    kAnyBytes),
            "ga half u gh y");
}

}  // namespace
}  // namespace onnx_fp8
