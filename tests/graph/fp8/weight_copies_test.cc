// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/weight_copies.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace onnx_fp8
