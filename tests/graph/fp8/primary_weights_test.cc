// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/primary_weights.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string SameName(const std::string& hint) { return hint; }

// The trained weight w has codes, and so has the frozen one.
constexpr char kTrainedAndFrozen[] = R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,2]
frozen f: float[2,2]
wq: float8e4m3fn[4,2], ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
fq: float8e4m3fn[2,2], fs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(f)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
yq: float8e4m3fn[2,2], ys: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(y)
z: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(yq, ys, fq, fs)
w2: float[4,2] = Neg(w)
output z
update w = w2
)";

TEST(KeepWeightCodes, TheStepReadsStateAndMakesTheNext) {
  auto graph = ParseGraph(kTrainedAndFrozen);
  const PrimaryWeights kept = KeepWeightCodes(*graph, SameName, false);
  ASSERT_NE(kept.maker, nullptr);
  Verify(*graph);
  Verify(*kept.maker);
  EXPECT_EQ(Print(*graph), R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,2]
copy fp8_weights.fq: float8e4m3fn[2,2]
copy fp8_weights.fs: float[]
copy fp8_weights.wq: float8e4m3fn[4,2]
copy fp8_weights.ws: float[]
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, fp8_weights.wq, fp8_weights.ws)
yq: float8e4m3fn[2,2], ys: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(y)
z: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(yq, ys, fp8_weights.fq, fp8_weights.fs)
w2: float[4,2] = Neg(w)
next.wq: float8e4m3fn[4,2], next.ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w2)
output z
update w = w2
update fp8_weights.wq = next.wq
update fp8_weights.ws = next.ws
)");
  EXPECT_EQ(kept.weights, 2u);
  EXPECT_EQ(kept.bytes, 8u + 4 + 4 + 4);
}

TEST(KeepWeightCodes, TheMakerReadsStateAlone) {
  auto graph = ParseGraph(kTrainedAndFrozen);
  const PrimaryWeights kept = KeepWeightCodes(*graph, SameName, false);
  ASSERT_NE(kept.maker, nullptr);
  const Graph& maker = *kept.maker;
  EXPECT_TRUE(maker.inputs.empty());
  EXPECT_TRUE(maker.outputs.empty());
  ASSERT_EQ(maker.state.size(), kept.copies.size());
  for (size_t i = 0; i < kept.copies.size(); ++i) {
    const auto& [state, next] = maker.state[i];
    EXPECT_EQ(state->name, kept.copies[i]);
    EXPECT_EQ(state->name, "fp8_weights." + next->name);
    EXPECT_EQ(state->role, Role::kWeightCopy);
  }
  for (const char* weight : {"w", "f"}) {
    ASSERT_NE(maker.Find(weight), nullptr) << weight;
    EXPECT_TRUE(maker.Find(weight)->is_initializer());
  }
}

// The positions of nodes by the names of their first results.
std::map<std::string, int> PlacesOfResults(const Graph& graph) {
  std::map<std::string, int> places;
  for (const Node& node : graph.nodes()) {
    places.emplace(node.out(0)->name, static_cast<int>(places.size()));
  }
  return places;
}

// Behind the update, and before the nodes that follow it.
TEST(KeepWeightCodes, CopiesOfEarlyUpdatesAreMadeEarly) {
  const std::string text = R"(
input x: float[2,4]
param w: float[4,2]
wq: float8e4m3fn[4,2], ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
w2: float[4,2] = Neg(w)
z: float[2,2] = Exp(y)
output z
update w = w2
)";
  for (bool early : {false, true}) {
    auto graph = ParseGraph(text);
    KeepWeightCodes(*graph, SameName, early);
    Verify(*graph);
    const auto places = PlacesOfResults(*graph);
    EXPECT_GT(places.at("next.wq"), places.at("w2"));
    EXPECT_EQ(places.at("next.wq") < places.at("z"), early);
  }
}

// The next codes wait for the next scale, and the decoded weight with them.
TEST(KeepWeightCodes, AWeightIsDecodedWhenItsScaleIsKnown) {
  auto graph = ParseGraph(R"(
input x: float[2,4]
input amax: float[1]
const first: int64[] = {0}
param w: float[4,2]
scale scales: float[1]
scale: float[] = Gather<axis=0>(scales, first)
d: float[4,2] = Abs(w)
wq: float8e4m3fn[4,2], ws: float[], wa: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(d, scale)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
w2: float[4,2] = Neg(w)
z: float[2,2] = Mul(y, wa)
s2: float[1] = Abs(amax)
output z
update scales = s2
update w = w2
)");
  KeepWeightCodes(*graph, SameName, true);
  Verify(*graph);
  const auto places = PlacesOfResults(*graph);
  EXPECT_GT(places.at("next.d"), places.at("s2"));
  EXPECT_LT(places.at("next.d"), places.at("next.wq"));
}

// A delayed scale is state, too: the next codes have the next scale.
TEST(KeepWeightCodes, NextCodesHaveTheNextScale) {
  auto graph = ParseGraph(R"(
input x: float[2,4]
input amax: float[1]
const first: int64[] = {0}
param w: float[4,2]
scale scales: float[1]
scale: float[] = Gather<axis=0>(scales, first)
wq: float8e4m3fn[4,2], ws: float[], wa: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(w, scale)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wq, ws)
z: float[2,2] = Mul(y, wa)
s2: float[1] = Abs(amax)
w2: float[4,2] = Neg(w)
output z
update scales = s2
update w = w2
)");
  KeepWeightCodes(*graph, SameName, false);
  Verify(*graph);
  const Node* made = graph->Find("next.wq")->producer;
  EXPECT_EQ(made->in(0)->name, "w2");
  EXPECT_EQ(made->in(1)->producer->in(0)->name, "s2");
  EXPECT_EQ(graph->Find("scale"), nullptr);
}

std::vector<std::string> CopiesKept(const std::string& text) {
  auto graph = ParseGraph(text);
  const PrimaryWeights kept = KeepWeightCodes(*graph, SameName, false);
  Verify(*graph);
  return kept.copies;
}

// Codes travel, and are kept as they arrive. A weight that is rounded or
// gathered and read as it is stays in the step.
TEST(KeepWeightCodes, NothingButCodesIsKept) {
  EXPECT_EQ(CopiesKept(R"(
input x: float[2,4]
param w: float[2,2]
param v: float[2,2]
param r: float[4,2]
wq: float8e4m3fn[2,2], ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
wall: float8e4m3fn[4,2] = onnx_fp8.AllGather<group="dp", ranks=2>(wq)
vall: float[4,2] = onnx_fp8.AllGather<group="dp", ranks=2>(v)
rr: float[4,2] = onnx_fp8.RoundTo<to=16>(r)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wall, ws)
a: float[2,2] = MatMul(x, vall)
b: float[2,2] = MatMul(x, rr)
output y
output a
output b
)"),
            (std::vector<std::string>{"fp8_weights.wall", "fp8_weights.ws"}));
}

// Ranks with other batches gather other layers in one call; all make codes
// alike, and each gather writes into its state.
TEST(KeepWeightCodes, EachGatherOfCodesIsACall) {
  auto graph = ParseGraph(R"(
input x: float[2,4]
param v: float[2,4]
param w: float[2,4]
vq: float8e4m3fn[2,4], vs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(v)
wq: float8e4m3fn[2,4], ws: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(w)
wall: float8e4m3fn[4,4] = onnx_fp8.AllGather<bucket=7, group="dp", ranks=2>(wq)
vall: float8e4m3fn[4,4] = onnx_fp8.AllGather<bucket=7, group="dp", ranks=2>(vq)
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[2,4] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, vall, vs)
z: float[2,4] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, wall, ws)
v2: float[2,4] = Neg(v)
w2: float[2,4] = Neg(w)
output y
output z
update v = v2
update w = w2
)");
  const PrimaryWeights kept = KeepWeightCodes(*graph, SameName, false);
  ASSERT_NE(kept.maker, nullptr);
  Verify(*graph);
  for (const Graph* made : {kept.maker.get(), graph.get()}) {
    std::vector<std::string> gathered;
    for (const Node& node : made->nodes()) {
      if (node.op != "AllGather") continue;
      gathered.push_back(node.out(0)->name);
      EXPECT_FALSE(node.attributes.contains("bucket")) << gathered.back();
    }
    const bool next = made == graph.get();
    EXPECT_EQ(gathered,
              (std::vector<std::string>{next ? "next.vall" : "vall",
                                        next ? "next.wall" : "wall"}));
  }
}

TEST(KeepWeightCodes, AStepWithoutCodesStaysAsItIs) {
  constexpr char text[] = R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,2]
y: float[2,2] = MatMul(x, w)
w2: float[4,2] = Neg(w)
output y
update w = w2
)";
  auto graph = ParseGraph(text);
  const PrimaryWeights kept = KeepWeightCodes(*graph, SameName, true);
  EXPECT_EQ(kept.maker, nullptr);
  EXPECT_EQ(kept.weights, 0u);
  EXPECT_EQ(Print(*graph), text);
}

}  // namespace
}  // namespace onnx_fp8
