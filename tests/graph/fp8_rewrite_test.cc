// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fp8_rewrite.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/passes/dead_code.h"
#include "graph/passes/scale_update.h"
#include "graph/print.h"
#include "graph/verify.h"
#include "onnx_fp8/check.h"
#include "onnx_fp8/recipe_text.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string Body(const Graph& graph) {
  Verify(graph);
  std::string text = Print(graph);
  return text.substr(text.find('\n') + 1);
}

TEST(Fp8Rewrite, KeepsWhatAGemmSays) {
  auto graph = ParseGraph(R"(
input x: float[3,4]
input c: float[4,5]
param w: float[5,3]
param b: float[5]
y: float[4,5] = Gemm<alpha=2.0, beta=3.0, transA=1, transB=1>(x, w, c)
z: float[4,5] = Gemm<transA=1, transB=1>(x, w, b)
output y
output z
)");
  Fp8Rewrite(*graph, {ParseRecipe("tensorwise")}, nullptr, {});
  EXPECT_EQ(Body(*graph), R"(input x: float[3,4]
input c: float[4,5]
param w: float[5,3]
param b: float[5]
const "const.float 2": float[] = {2.0}
const "const.float 3": float[] = {3.0}
y.QuantizeTensor: float8e4m3fn[3,4], y.QuantizeTensor.1: float[], y.QuantizeTensor.2: float[] = onnx_fp8.QuantizeTensor<fqn="w", operand="input", q_max=448.0, to=17>(x)
y.QuantizeTensor_1: float8e4m3fn[5,3], y.QuantizeTensor.1_1: float[], y.QuantizeTensor.2_1: float[] = onnx_fp8.QuantizeTensor<fqn="w", operand="weight", q_max=448.0, to=17>(w)
y.ScaledMatMul: float[4,5] = onnx_fp8.ScaledMatMul<fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="forward", transA=1, transB=1>(y.QuantizeTensor, y.QuantizeTensor.1, y.QuantizeTensor_1, y.QuantizeTensor.1_1)
y.Mul: float[4,5] = Mul(y.ScaledMatMul, "const.float 2")
y.Mul_1: float[4,5] = Mul(c, "const.float 3")
y: float[4,5] = Add(y.Mul, y.Mul_1)
z: float[4,5] = onnx_fp8.ScaledMatMulBias<fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="forward", transA=1, transB=1>(y.QuantizeTensor, y.QuantizeTensor.1, y.QuantizeTensor_1, y.QuantizeTensor.1_1, b)
output y
output z
)");
}

constexpr char kStep[] = R"(
input x: float[2,3]
const seed: float[2,4]
param w: float[3,4]
y: float[2,4] = Gemm(x, w)
dx: float[2,3] = Gemm<transB=1>(seed, w)
dw: float[3,4] = Gemm<transA=1>(x, seed)
output y
output dx
output dw
)";

// One copy of x, w and dy each, dy in the format of gradients.
TEST(Fp8Rewrite, ReadersShareACopy) {
  auto graph = ParseGraph(kStep);
  Fp8Rewrite(*graph, {ParseRecipe("tensorwise")}, graph->Find("seed"),
             {{graph->Find("w"), graph->Find("dw")}});
  EXPECT_EQ(Body(*graph), R"(input x: float[2,3]
const seed: float[2,4] = {0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0}
param w: float[3,4]
y.QuantizeTensor: float8e4m3fn[2,3], y.QuantizeTensor.1: float[], y.QuantizeTensor.2: float[] = onnx_fp8.QuantizeTensor<fqn="w", operand="input", q_max=448.0, to=17>(x)
y.QuantizeTensor_1: float8e4m3fn[3,4], y.QuantizeTensor.1_1: float[], y.QuantizeTensor.2_1: float[] = onnx_fp8.QuantizeTensor<fqn="w", operand="weight", q_max=448.0, to=17>(w)
y: float[2,4] = onnx_fp8.ScaledMatMul<fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="forward", transA=0, transB=0>(y.QuantizeTensor, y.QuantizeTensor.1, y.QuantizeTensor_1, y.QuantizeTensor.1_1)
dx.QuantizeTensor: float8e5m2[2,4], dx.QuantizeTensor.1: float[], dx.QuantizeTensor.2: float[] = onnx_fp8.QuantizeTensor<fqn="w", operand="grad_output", q_max=57344.0, to=19>(seed)
dx: float[2,3] = onnx_fp8.ScaledMatMul<fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="dgrad", transA=0, transB=1>(dx.QuantizeTensor, dx.QuantizeTensor.1, y.QuantizeTensor_1, y.QuantizeTensor.1_1)
dw: float[3,4] = onnx_fp8.ScaledMatMul<fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="wgrad", transA=1, transB=0>(y.QuantizeTensor, y.QuantizeTensor.1, dx.QuantizeTensor, dx.QuantizeTensor.1)
output y
output dx
output dw
)");
}

std::vector<std::string> Keys(const Fp8Plan& plan) {
  std::vector<std::string> keys;
  for (const ScaleSlot& slot : plan.slots) keys.push_back(slot.Key());
  return keys;
}

// Which scale a tensor's node gathers.
int64_t SlotRead(const Graph& graph, const std::string& quantised) {
  for (const Node& node : graph.nodes()) {
    if (!node.IsOurs("QuantizeWith") || node.in(0)->name != quantised) continue;
    return IntAt(node.in(1)->producer->in(1)->data, 0);
  }
  return -1;
}

TEST(Fp8Rewrite, DelayedScalesGoByKey) {
  auto graph = ParseGraph(kStep);
  Fp8Spec spec = {ParseRecipe("delayed")};
  auto rewrite = [&](const std::vector<ScaleSlot>* known) {
    graph = ParseGraph(kStep);
    return Fp8Rewrite(*graph, spec, graph->Find("seed"),
                      {{graph->Find("w"), graph->Find("dw")}}, known);
  };
  Fp8Plan plan = rewrite(nullptr);
  std::vector<std::string> keys = {"w/forward/input/float8e4m3fn#0",
                                   "w/forward/weight/float8e4m3fn#0",
                                   "w/dgrad/grad_output/float8e5m2#0"};
  EXPECT_EQ(Keys(plan), keys);
  EXPECT_EQ(SlotRead(*graph, "x"), 0);
  EXPECT_EQ(SlotRead(*graph, "w"), 1);
  EXPECT_EQ(SlotRead(*graph, "seed"), 2);
  // The amaxes of the update lie as the slots do.
  const Node& amax = *AmaxVector(*graph, plan)->producer;
  for (size_t i = 0; i < 3; ++i) {
    const Node& reshape = *amax.in(i)->producer;
    EXPECT_EQ(reshape.in(0), plan.slots[i].amax) << i;
  }
  std::vector<ScaleSlot> known = plan.slots;
  std::ranges::rotate(known, known.begin() + 1);
  EXPECT_EQ(Keys(rewrite(&known)), (std::vector{keys[1], keys[2], keys[0]}));
  EXPECT_EQ(SlotRead(*graph, "x"), 2);
  EXPECT_EQ(SlotRead(*graph, "w"), 0);
  EXPECT_EQ(SlotRead(*graph, "seed"), 1);
}

TEST(Fp8Rewrite, ALayerThatRunsTwiceHasTwoInputScales) {
  auto graph = ParseGraph(R"(
input x: float[2,3]
param w: float[3,3]
y: float[2,3] = Gemm(x, w)
z: float[2,3] = Gemm(y, w)
output z
)");
  Fp8Plan plan = Fp8Rewrite(*graph, {ParseRecipe("delayed")}, nullptr, {});
  EXPECT_EQ(Keys(plan),
            (std::vector<std::string>{"w/forward/input/float8e4m3fn#0",
                                      "w/forward/weight/float8e4m3fn#0",
                                      "w/forward/input/float8e4m3fn#1"}));
}

// What each use of an operand says goes into the graph; equal copies are one.
TEST(Fp8Rewrite, UsesOfAnOperandMayDiffer) {
  auto graph = ParseGraph(kStep);
  Fp8Spec spec = {
      ParseRecipe("tensorwise,w_gi:dyn_ten_e5m2,go:dyn_ten_e4m3,"
                  "i_gw:hp,go_gw:hp")};
  Fp8Rewrite(*graph, spec, graph->Find("seed"),
             {{graph->Find("w"), graph->Find("dw")}});
  std::vector<std::string> copies;
  for (const Node& node : graph->nodes()) {
    if (!node.IsOurs("QuantizeTensor")) continue;
    copies.push_back(Concat(node.in(0)->name, " ", Name(node.out(0)->dtype)));
  }
  EXPECT_EQ(copies,
            (std::vector<std::string>{"x float8e4m3fn", "w float8e4m3fn",
                                      "seed float8e4m3fn", "w float8e5m2"}));
  EXPECT_TRUE(graph->Find("dw")->producer->Is("Gemm"));
}

TEST(Fp8Rewrite, EachLayerHasItsRecipe) {
  auto graph = ParseGraph(R"(
input x: float[2,3]
param a.weight: float[3,3]
param b.weight: float[3,3]
y: float[2,3] = Gemm(x, a.weight)
z: float[2,3] = Gemm(y, b.weight)
output z
)");
  Fp8Spec spec = {ParseRecipe("tensorwise")};
  spec.filter.recipes = {{"b", ParseRecipe("delayed")}};
  Fp8Plan plan = Fp8Rewrite(*graph, spec, nullptr, {});
  EXPECT_EQ(Keys(plan), (std::vector<std::string>{
                            "b.weight/forward/input/float8e4m3fn#0",
                            "b.weight/forward/weight/float8e4m3fn#0"}));
  EXPECT_EQ(plan.amaxes.size(), 2u);
  EXPECT_EQ(std::get<std::string>(
                graph->Find("z")->producer->attributes.at("recipe")),
            "i:del16_ten_e4m3,w:del16_ten_e4m3,go:del16_ten_e5m2");
}

TEST(Fp8Rewrite, RefusesWhatThereAreNoOpsFor) {
  for (const char* recipe : {"rowwise", "blockwise", "mxfp8", "static",
                             "tensorwise,round:p2", "delayed,update:micro"}) {
    auto graph = ParseGraph(kStep);
    EXPECT_THROW(Fp8Rewrite(*graph, {ParseRecipe(recipe)}, nullptr, {}), Error)
        << recipe;
  }
}

}  // namespace
}  // namespace onnx_fp8
