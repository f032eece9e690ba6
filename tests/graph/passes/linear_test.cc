// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/linear.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/passes/dead_code.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string Normalized(const std::string& text) {
  auto graph = ParseGraph(text);
  NormalizeLinear(*graph);
  graph->Sort();
  RemoveDeadCode(*graph);
  Verify(*graph);
  std::string after = Print(*graph);
  return after.substr(after.find('\n') + 1);
}

TEST(NormalizeLinear, AWeightOnTheRight) {
  EXPECT_EQ(Normalized(R"(
input x: float[2,5,3]
param w: float[4,3]
param v: float[3,4]
param b: float[4]
wt: float[3,4] = Transpose<perm=[1,0]>(w)
p: float[2,5,4] = MatMul(x, wt)
y: float[2,5,4] = Add(p, b)
z: float[2,5,4] = MatMul(x, v)
output y
output z
)"),
            R"(input x: float[2,5,3]
param w: float[4,3]
param v: float[3,4]
param b: float[4]
const "const.int64[2] 10 3": int64[2] = {10,3}
const "const.int64[3] 2 5 4": int64[3] = {2,5,4}
p.Reshape: float[10,3] = Reshape<allowzero=1>(x, "const.int64[2] 10 3")
p.Gemm: float[10,4] = Gemm<transB=1>(p.Reshape, w, b)
y: float[2,5,4] = Reshape<allowzero=1>(p.Gemm, "const.int64[3] 2 5 4")
z.Gemm: float[10,4] = Gemm<transB=0>(p.Reshape, v)
z: float[2,5,4] = Reshape<allowzero=1>(z.Gemm, "const.int64[3] 2 5 4")
output y
output z
)");
}

TEST(NormalizeLinear, AWeightOnTheLeft) {
  EXPECT_EQ(Normalized(R"(
input x: float[2,3,5]
input u: float[3,5]
param w: float[4,3]
param v: float[3,4]
vt: float[4,3] = Transpose<perm=[1,0]>(v)
y: float[2,4,5] = MatMul(w, x)
z: float[2,4,5] = MatMul(vt, x)
t: float[4,5] = MatMul(vt, u)
output y
output z
output t
)"),
            R"(input x: float[2,3,5]
input u: float[3,5]
param w: float[4,3]
param v: float[3,4]
const "const.int64[2] 10 3": int64[2] = {10,3}
const "const.int64[3] 2 5 4": int64[3] = {2,5,4}
y.Transpose: float[2,5,3] = Transpose<perm=[0,2,1]>(x)
y.Reshape: float[10,3] = Reshape<allowzero=1>(y.Transpose, "const.int64[2] 10 3")
y.Gemm: float[10,4] = Gemm<transB=1>(y.Reshape, w)
y.Reshape_1: float[2,5,4] = Reshape<allowzero=1>(y.Gemm, "const.int64[3] 2 5 4")
y: float[2,4,5] = Transpose<perm=[0,2,1]>(y.Reshape_1)
z.Transpose: float[2,5,3] = Transpose<perm=[0,2,1]>(x)
z.Reshape: float[10,3] = Reshape<allowzero=1>(z.Transpose, "const.int64[2] 10 3")
z.Gemm: float[10,4] = Gemm<transB=0>(z.Reshape, v)
z.Reshape_1: float[2,5,4] = Reshape<allowzero=1>(z.Gemm, "const.int64[3] 2 5 4")
z: float[2,4,5] = Transpose<perm=[0,2,1]>(z.Reshape_1)
t: float[4,5] = Gemm<transA=1>(v, u)
output y
output z
output t
)");
}

// Another node reads the sum without the bias too.
TEST(NormalizeLinear, TakesABiasFromItsOnlyReader) {
  EXPECT_EQ(Normalized(R"(
input x: float[2,3]
param w: float[3,4]
param b: float[4]
p: float[2,4] = MatMul(x, w)
y: float[2,4] = Add(p, b)
z: float[2,4] = Neg(p)
output y
output z
)"),
            R"(input x: float[2,3]
param w: float[3,4]
param b: float[4]
p: float[2,4] = Gemm<transB=0>(x, w)
y: float[2,4] = Add(p, b)
z: float[2,4] = Neg(p)
output y
output z
)");
}

TEST(NormalizeLinear, TransposesBecomeFlags) {
  EXPECT_EQ(Normalized(R"(
input x: float[2,3]
param w: float[4,3]
wt: float[3,4] = Transpose<perm=[1,0]>(w)
y: float[2,4] = Gemm<transB=0>(x, wt)
z: float[2,3] = Gemm<transB=1>(y, wt)
output z
)"),
            R"(input x: float[2,3]
param w: float[4,3]
y: float[2,4] = Gemm<transB=1>(x, w)
z: float[2,3] = Gemm<transB=0>(y, w)
output z
)");
}

// The pass replaces the product in front of the Transpose, and then visits the
// product behind it.
TEST(NormalizeLinear, TheTransposeOfAnotherProduct) {
  EXPECT_EQ(Normalized(R"(
input x: float[2,3]
param w: float[3,4]
param v: float[2,5]
h: float[2,4] = MatMul(x, w)
t: float[4,2] = Transpose<perm=[1,0]>(h)
u: float[2,4] = Transpose<perm=[1,0]>(t)
z: float[4,5] = Gemm(t, v)
y: float[2,3] = Gemm<transB=1>(u, w)
output z
output y
)"),
            R"(input x: float[2,3]
param w: float[3,4]
param v: float[2,5]
h: float[2,4] = Gemm<transB=0>(x, w)
z: float[4,5] = Gemm<transA=1>(h, v)
y: float[2,3] = Gemm<transA=0, transB=1>(h, w)
output z
output y
)");
}

}  // namespace
}  // namespace onnx_fp8
