// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/shard_parameters.h"

#include <gtest/gtest.h>

#include <tuple>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"
#include "training/ranks/sharded_state.h"

namespace onnx_fp8 {
namespace {

// A forward product, a backward that begins at "seed", a gradient and a node
// behind it.
constexpr char kStepText[] = R"(graph "g" opset 24
input x: float[2,3]
input seed: float[2,4]
param w: float[3,4]
wq: float8e4m3fn[3,4], ws: float[], wa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
xq: float8e4m3fn[2,3], xs: float[], xa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,4] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
gq: float8e4m3fn[2,4], gs: float[], ga: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(seed)
dw: float[3,4] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(xq, xs, gq, gs)
dx: float[2,3] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(gq, gs, wq, ws)
z: float[2,4] = Relu(y)
output z
output dx
output wa
)";

// The same with another layer between the product and the backward.
std::string TwoLayers() {
  std::string text = kStepText;
  text.insert(text.find("wq:"), "param v: float[4,4]\n");
  text.insert(text.find("gq:"), "u: float[2,4] = MatMul(y, v)\n");
  return text;
}

std::string Sharded(const std::string& text, ShardSpec spec,
                    ParameterGradients* gradients) {
  auto graph = ParseGraph(text);
  const std::map<std::string, Shape> parameters = ParametersToShard(*graph);
  *gradients = {{graph->Find("w"), graph->Find("dw")}};
  ShardParameters(*graph, {spec, {.dp = 2}, &parameters, graph->Find("seed")},
                  gradients, false);
  Verify(*graph);
  graph->outputs.push_back((*gradients)[0].second);
  return Print(*graph);
}

TEST(ShardParameters, Float8TravelsTwice) {
  ParameterGradients gradients;
  EXPECT_EQ(Sharded(TwoLayers(), {Sharding::kParameters}, &gradients),
            R"(graph "g" opset 24
input x: float[2,3]
input seed: float[2,4]
param w: float[2,4]
param v: float[2,4]
const "const.int64[1] 1": int64[1] = {1}
const "const.int64 0": int64[] = {0}
const "const.float 0": float[] = {0.0}
const "const.int64[4] 0 0 1 0": int64[4] = {0,0,1,0}
amax.Amax: float[] = onnx_fp8.Amax(w)
amax.Reshape: float[1] = Reshape<allowzero=1>(amax.Amax, "const.int64[1] 1")
amax.AllReduce: float[1] = onnx_fp8.AllReduce<group="dp", ranks=2, reduction="max">(amax.Reshape)
amax.Gather: float[] = Gather<axis=0>(amax.AllReduce, "const.int64 0")
w.part.QuantizeAmax: float8e4m3fn[2,4], ws: float[] = onnx_fp8.QuantizeAmax<q_max=448.0, to=17>(w, amax.Gather, "const.float 0")
wa: float[] = Identity(amax.Gather)
xq: float8e4m3fn[2,3], xs: float[], xa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
w.part.QuantizeAmax.AllGather: float8e4m3fn[3,4] = onnx_fp8.AllGather<group="dp", ranks=2, rows=3>(w.part.QuantizeAmax)
y: float[2,4] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, w.part.QuantizeAmax.AllGather, ws)
v.part.AllGather: float[4,4] = onnx_fp8.AllGather<group="dp", ranks=2>(v)
u: float[2,4] = MatMul(y, v.part.AllGather)
gq: float8e4m3fn[2,4], gs: float[], ga: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(seed)
dw: float[3,4] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(xq, xs, gq, gs)
w.part.QuantizeAmax.AllGather_1: float8e4m3fn[3,4] = onnx_fp8.AllGather<group="dp", ranks=2, rows=3>(w.part.QuantizeAmax)
dw.Pad: float[4,4] = Pad(dw, "const.int64[4] 0 0 1 0")
dw.ReduceScatter: float[2,4] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(dw.Pad)
dx: float[2,3] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(gq, gs, w.part.QuantizeAmax.AllGather_1, ws)
z: float[2,4] = Relu(y)
output z
output dx
output wa
output dw.ReduceScatter
)");
}

// Its backward follows its forward.
TEST(ShardParameters, TheLastLayersWeightTravelsOnce) {
  ParameterGradients gradients;
  const std::string text =
      Sharded(kStepText, {Sharding::kParameters}, &gradients);
  const size_t gather = text.find("AllGather<");
  ASSERT_NE(gather, text.npos);
  EXPECT_LT(gather, text.find("y: float[2,4]"));
  EXPECT_EQ(text.find("AllGather<", gather + 1), text.npos) << text;
}

TEST(ShardParameters, FloatTravelsOnce) {
  ParameterGradients gradients;
  EXPECT_EQ(
      Sharded(kStepText, {Sharding::kGradients, GatherAs::kFloat}, &gradients),
      R"(graph "g" opset 24
input x: float[2,3]
input seed: float[2,4]
param w: float[2,4]
const "const.int64[4] 0 0 1 0": int64[4] = {0,0,1,0}
w.part.AllGather: float[3,4] = onnx_fp8.AllGather<group="dp", ranks=2, rows=3>(w)
wq: float8e4m3fn[3,4], ws: float[], wa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w.part.AllGather)
xq: float8e4m3fn[2,3], xs: float[], xa: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,4] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
gq: float8e4m3fn[2,4], gs: float[], ga: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(seed)
dw: float[3,4] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(xq, xs, gq, gs)
dw.Pad: float[4,4] = Pad(dw, "const.int64[4] 0 0 1 0")
dw.ReduceScatter: float[2,4] = onnx_fp8.ReduceScatter<group="dp", ranks=2>(dw.Pad)
dx: float[2,3] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(gq, gs, wq, ws)
z: float[2,4] = Relu(y)
output z
output dx
output wa
output dw.ReduceScatter
)");
}

// The FP8 copy does not live from the forward to the backward; its amax is the
// forward's.
TEST(ShardParameters, ACopyOfAWholeWeightIsMadeAgain) {
  ParameterGradients gradients;
  const std::string text = Sharded(
      TwoLayers(), {Sharding::kParameters, GatherAs::kFloat}, &gradients);
  for (const char* line :
       {"wq: float8e4m3fn[3,4], ws: float[], wa: float[] = "
        "onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w.part.AllGather)\n",
        "wq.again: float8e4m3fn[3,4], ws.again: float[], _ = "
        "onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w.part.AllGather_1)\n",
        "(xq, xs, wq, ws)\n", "(gq, gs, wq.again, ws.again)\n",
        "output wa\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  EXPECT_LT(text.find("w.part.AllGather_1: "), text.find("wq.again: "));
  EXPECT_LT(text.find("gq: "), text.find("w.part.AllGather_1: "));
}

TEST(ShardParameters, ParametersOfAModel) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[2]
param scalar: float[]
param none: float[0,3]
param w: float[2]
frozen f: float[2]
a: float[2] = Mul(x, w)
b: float[2] = Mul(a, scalar)
c: float[2] = Add(b, f)
output c
)");
  EXPECT_EQ(ParametersToShard(*graph),
            (std::map<std::string, Shape>{{"w", {2}}}));
}

TEST(ShardOf, RowsOfEachRank) {
  for (auto [rank, begin, rows] :
       {std::tuple{0, 0, 2}, {1, 2, 2}, {2, 4, 1}, {3, 5, 0}}) {
    const Shard shard = ShardOf({5, 3}, rank, 4);
    EXPECT_EQ(shard.begin, begin);
    EXPECT_EQ(shard.rows, rows);
    EXPECT_EQ(shard.part, (Shape{2, 3}));
    EXPECT_EQ(shard.whole, (Shape{5, 3}));
  }
}

}  // namespace
}  // namespace onnx_fp8
