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

}  // namespace
}  // namespace onnx_fp8
