// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/weight_copies.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

TEST(SplitWeightCopies, MovesWhatDependsOnStateAlone) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,4]
const shape: int64[2] = {4,2}
param w: float[8]
state scale: float[]
m: float[4,2] = Reshape(w, shape)
wq: float8e4m3fn[4,2], ws: float[], wa: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(m, scale)
xq: float8e4m3fn[2,4], xs: float[], xa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
z: float[2,2] = Mul(y, wa)
output z
)");
  auto copies = SplitWeightCopies(*graph);
  ASSERT_NE(copies, nullptr);
  Verify(*graph);
  Verify(*copies);
  EXPECT_EQ(Print(*copies), R"(graph "g" opset 24
param w: float[8]
const shape: int64[2] = {4,2}
state scale: float[]
m: float[4,2] = Reshape(w, shape)
wq: float8e4m3fn[4,2], ws: float[], wa: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(m, scale)
output wq
output ws
output wa
)");
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,4]
input wq: float8e4m3fn[4,2]
input ws: float[]
input wa: float[]
state scale: float[]
xq: float8e4m3fn[2,4], xs: float[], xa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
z: float[2,2] = Mul(y, wa)
output z
)");
  EXPECT_EQ(SplitWeightCopies(*graph), nullptr);
}

// Without `gathers` a whole weight, and a copy of it, exist only while a micro
// step uses them.
TEST(SplitWeightCopies, ACopyOfAGatheredWeightStaysWithItsGather) {
  constexpr char text[] = R"(graph "g" opset 24
input x: float[2,4]
param w: float[2,2]
all: float[4,2] = onnx_fp8.AllGather<group="dp", ranks=2>(w)
wq: float8e4m3fn[4,2], ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(all)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
output y
)";
  auto graph = ParseGraph(text);
  EXPECT_EQ(SplitWeightCopies(*graph, false), nullptr);
  auto copies = SplitWeightCopies(*graph, true);
  ASSERT_NE(copies, nullptr);
  EXPECT_NE(copies->Find("wq"), nullptr);
}

// Each micro-batch draws numbers of its own.
TEST(SplitWeightCopies, ACopyOfADrawnWeightStays) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,4]
const ratio: float[] = {0.5}
const on: bool[] = {1}
param w: float[4,2]
d: float[4,2] = Dropout(w, ratio, on)
wq: float8e4m3fn[4,2], ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(d)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
output y
)");
  EXPECT_EQ(SplitWeightCopies(*graph), nullptr);
}

// What the copies are, by name.
std::vector<std::string> CopiesIn(const std::string& text, bool gathers) {
  auto graph = ParseGraph(text);
  auto copies = SplitWeightCopies(*graph, gathers);
  Verify(*graph);
  std::vector<std::string> names;
  if (!copies) return names;
  Verify(*copies);
  for (const Value* value : copies->outputs) names.push_back(value->name);
  return names;
}

// Copies are kept in 16 bits where the step kept them so.
TEST(SplitWeightCopies, MovesWhatIsRounded) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,2]
param b: float[2]
xr: float as bfloat16[2,4] = onnx_fp8.RoundTo<to=16>(x)
wr: float as bfloat16[4,2] = onnx_fp8.RoundTo<to=16>(w)
br: float[2] = onnx_fp8.RoundTo<to=16>(b)
y: float[2,2] = Gemm(xr, wr, br)
output y
)");
  auto copies = SplitWeightCopies(*graph);
  ASSERT_NE(copies, nullptr);
  EXPECT_EQ(Print(*copies), R"(graph "g" opset 24
param w: float[4,2]
param b: float[2]
wr: float as bfloat16[4,2] = onnx_fp8.RoundTo<to=16>(w)
br: float[2] = onnx_fp8.RoundTo<to=16>(b)
output br
output wr
)");
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,4]
input br: float[2]
input wr: float as bfloat16[4,2]
xr: float as bfloat16[2,4] = onnx_fp8.RoundTo<to=16>(x)
y: float[2,2] = Gemm(xr, wr, br)
output y
)");
}

// A part of a weight that each rank rounds before it travels, and a whole one
// that each rank rounds afterwards: only the rounded one stays.
TEST(SplitWeightCopies, GathersIfWholeWeightsMayStay) {
  constexpr char kParts[] = R"(
input x: float[2,4]
param p: float[2,2]
param q: float[2,2]
pr: float as bfloat16[2,2] = onnx_fp8.RoundTo<to=16>(p)
pw: float as bfloat16[4,2] = onnx_fp8.AllGather<group="dp", ranks=2>(pr)
qw: float[4,2] = onnx_fp8.AllGather<group="dp", ranks=2>(q)
qt: float[4,2] = Neg(qw)
qr: float as bfloat16[4,2] = onnx_fp8.RoundTo<to=16>(qt)
y: float[2,2] = MatMul(x, pw)
z: float[2,2] = MatMul(x, qr)
output y
output z
)";
  EXPECT_EQ(CopiesIn(kParts, true), (std::vector<std::string>{"qr", "pw"}));
  EXPECT_EQ(CopiesIn(kParts, false), (std::vector<std::string>{"pr"}));
}

// The next micro-batch reads another value.
TEST(SplitWeightCopies, LeavesStateThatTheStepUpdates) {
  EXPECT_TRUE(CopiesIn(R"(
input x: float[2]
statistic mean: float[2]
r: float[2] = onnx_fp8.RoundTo<to=16>(mean)
y: float[2] = Add(x, r)
output y
update mean = y
)",
                       true)
                  .empty());
}

}  // namespace
}  // namespace onnx_fp8
