// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fold_transpose.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string Folded(const std::string& text) {
  auto graph = ParseGraph(text);
  FoldTranspose(*graph);
  Verify(*graph);
  std::string after = Print(*graph);
  return after.substr(after.find('\n') + 1);
}

TEST(FoldTranspose, FlipsTheFlagsOfAGemm) {
  EXPECT_EQ(Folded(R"(
input x: float[2,3]
param w: float[3,4]
xt: float[3,2] = Transpose<perm=[1,0]>(x)
wt: float[4,3] = Transpose(w)
y: float[2,4] = Gemm<alpha=2.0, transA=1, transB=1>(xt, wt)
z: float[2,4] = Gemm<transA=1>(xt, w)
u: float[3,3] = Gemm(xt, x)
v: float[2,2] = Gemm(x, xt)
output y
output z
output u
output v
)"),
            R"(input x: float[2,3]
param w: float[3,4]
y: float[2,4] = Gemm<alpha=2.0, transA=0, transB=0>(x, w)
z: float[2,4] = Gemm<transA=0>(x, w)
u: float[3,3] = Gemm<transA=1>(x, x)
v: float[2,2] = Gemm<transB=1>(x, x)
output y
output z
output u
output v
)");
}

TEST(FoldTranspose, KeepsATransposeThatOthersRead) {
  EXPECT_EQ(Folded(R"(
input x: float[2,3]
state s: float[3,2]
t: float[3,2] = Transpose<perm=[1,0]>(x)
u: float[3,2] = Transpose<perm=[1,0]>(x)
y: float[3,3] = Gemm(t, x)
z: float[3,2] = Neg(t)
output y
output z
update s = u
)"),
            R"(input x: float[2,3]
state s: float[3,2]
t: float[3,2] = Transpose<perm=[1,0]>(x)
u: float[3,2] = Transpose<perm=[1,0]>(x)
y: float[3,3] = Gemm<transA=1>(x, x)
z: float[3,2] = Neg(t)
output y
output z
update s = u
)");
}

TEST(FoldTranspose, MergesChains) {
  EXPECT_EQ(Folded(R"(
input x: float[2,3,4]
a: float[4,2,3] = Transpose<perm=[2,0,1]>(x)
b: float[2,4,3] = Transpose<perm=[1,0,2]>(a)
c: float[2,3,4] = Transpose<perm=[0,2,1]>(b)
y: float[2,3,4] = Neg(c)
z: float[2,4,3] = Neg(b)
output y
output z
)"),
            R"(input x: float[2,3,4]
b: float[2,4,3] = Transpose<perm=[0,2,1]>(x)
y: float[2,3,4] = Neg(x)
z: float[2,4,3] = Neg(b)
output y
output z
)");
}

TEST(FoldTranspose, TwiceTransposedOperandOfAGemm) {
  EXPECT_EQ(Folded(R"(
input x: float[2,2]
a: float[2,2] = Transpose(x)
b: float[2,2] = Transpose(a)
c: float[2,2] = Transpose(b)
y: float[2,2] = Gemm(b, c)
output y
)"),
            R"(input x: float[2,2]
y: float[2,2] = Gemm<transB=1>(x, x)
output y
)");
}

TEST(FoldTranspose, AGraphOutputKeepsItsName) {
  EXPECT_EQ(Folded(R"(
input x: float[2,3]
state s: float[2,3]
y: float[2,3] = Transpose<perm=[0,1]>(x)
n: float[2,3] = Transpose<perm=[0,1]>(x)
output y
update s = n
)"),
            R"(input x: float[2,3]
state s: float[2,3]
y: float[2,3] = Identity(x)
output y
update s = x
)");
}

TEST(FoldTranspose, LeavesAloneWhatItDoesNotUnderstand) {
  constexpr char kText[] = R"(input x: float
input w: float[2,3,4]
input m: float[2,2]
a: float = Transpose(x)
b: float = Transpose(a)
c: float = Transpose<perm=[0,0,1]>(w)
d: float = Transpose<perm=[0,1]>(w)
e: float = Transpose<perm=[0,1,3]>(w)
f: float[2,2] = Transpose(m)
g: float[2,2] = Gemm(m, m, f)
h: float = Gemm(a, c)
output b
output d
output e
output g
output h
)";
  EXPECT_EQ(Folded(kText), kText);
}

TEST(FoldTranspose, KeepsWhatASubgraphReads) {
  auto body = std::make_shared<Graph>();
  body->AddNode("Neg", {body->AddCaptured("t")}, {"n"});
  auto graph = ParseGraph(
      "input x: float[2,3]\nt: float[2,3] = Transpose<perm=[0,1]>(x)");
  graph->AddNode("If", {}, {"y"}, {{"then_branch", body}});
  FoldTranspose(*graph);
  Verify(*graph);
  EXPECT_NE(graph->Find("t"), nullptr);
}

}  // namespace
}  // namespace onnx_fp8
