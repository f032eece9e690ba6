// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/gather_ahead.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string OrderOf(const std::string& text) {
  auto graph = ParseGraph(text);
  GatherAhead(*graph);
  Verify(*graph);
  std::string names;
  for (const Node& node : graph->nodes()) {
    names += (names.empty() ? "" : " ") + node.out(0)->name;
  }
  return names;
}

// Each gather starts before the layer before its own; what is gathered is
// prepared before. A bias that is gathered behind its weight joins its layer.
TEST(GatherAhead, OneLayerAhead) {
  EXPECT_EQ(OrderOf(R"(
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
)"),
            "gp u gq a half gr gs b c gx");
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

}  // namespace
}  // namespace onnx_fp8
