// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/fp8_rewrite.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/check.h"
#include "graph/fp8/scale_update.h"
#include "graph/onnx/verify.h"
#include "graph/passes/dead_code.h"
#include "graph/print.h"
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
y.ScaledMatMul: float[4,5] = onnx_fp8.ScaledMatMul<fast_accum=1, fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="forward", transA=1, transB=1>(y.QuantizeTensor, y.QuantizeTensor.1, y.QuantizeTensor_1, y.QuantizeTensor.1_1)
y.Mul: float[4,5] = Mul(y.ScaledMatMul, "const.float 2")
y.Mul_1: float[4,5] = Mul(c, "const.float 3")
y: float[4,5] = Add(y.Mul, y.Mul_1)
z: float[4,5] = onnx_fp8.ScaledMatMulBias<fast_accum=1, fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="forward", transA=1, transB=1>(y.QuantizeTensor, y.QuantizeTensor.1, y.QuantizeTensor_1, y.QuantizeTensor.1_1, b)
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

// x, w and dy have one copy each; dy's has the format of gradients.
TEST(Fp8Rewrite, ReadersShareACopy) {
  auto graph = ParseGraph(kStep);
  Fp8Rewrite(*graph, {ParseRecipe("tensorwise")}, graph->Find("seed"),
             {{graph->Find("w"), graph->Find("dw")}});
  EXPECT_EQ(Body(*graph), R"(input x: float[2,3]
const seed: float[2,4] = {0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0}
param w: float[3,4]
y.QuantizeTensor: float8e4m3fn[2,3], y.QuantizeTensor.1: float[], y.QuantizeTensor.2: float[] = onnx_fp8.QuantizeTensor<fqn="w", operand="input", q_max=448.0, to=17>(x)
y.QuantizeTensor_1: float8e4m3fn[3,4], y.QuantizeTensor.1_1: float[], y.QuantizeTensor.2_1: float[] = onnx_fp8.QuantizeTensor<fqn="w", operand="weight", q_max=448.0, to=17>(w)
y: float[2,4] = onnx_fp8.ScaledMatMul<fast_accum=1, fqn="w", recipe="i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:dyn_ten_e5m2", role="forward", transA=0, transB=0>(y.QuantizeTensor, y.QuantizeTensor.1, y.QuantizeTensor_1, y.QuantizeTensor.1_1)
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

// The slots whose scales the copies of a tensor gather.
std::vector<int64_t> SlotsRead(const Graph& graph,
                               const std::string& quantized) {
  std::vector<int64_t> slots;
  for (const Node& node : graph.nodes()) {
    if (!node.IsOurs("QuantizeWith") || node.in(0)->name != quantized) continue;
    slots.push_back(IntAt(node.in(1)->producer->in(1)->data, 0));
  }
  return slots;
}

// The slot of its only copy; -1 if it has none, or several.
int64_t SlotRead(const Graph& graph, const std::string& quantized) {
  std::vector<int64_t> slots = SlotsRead(graph, quantized);
  return slots.size() == 1 ? slots[0] : -1;
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
  // The amaxes of the update have the order of the slots.
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

// The input of a first layer has no gradient, unless someone asks for it.
TEST(Fp8Rewrite, ScalesKeepTheirKeysWithoutDgrad) {
  auto keys = [](std::string text, const char* recipe) {
    auto graph = ParseGraph(text);
    return Keys(Fp8Rewrite(*graph, {ParseRecipe(recipe)}, graph->Find("seed"),
                           {{graph->Find("w"), graph->Find("dw")}}));
  };
  std::string first = kStep;
  for (const char* line :
       {"dx: float[2,3] = Gemm<transB=1>(seed, w)\n", "output dx\n"}) {
    first.erase(first.find(line), strlen(line));
  }
  EXPECT_EQ(keys(first, "delayed"), keys(kStep, "delayed"));
  EXPECT_EQ(keys(first, "delayed").back(), "w/dgrad/grad_output/float8e5m2#0");
  // If wgrad has its own item, it keeps that.
  const char* own = "delayed,go:dyn_ten_e5m2,go_gw:del_ten_e4m3";
  EXPECT_EQ(keys(first, own), keys(kStep, own));
  EXPECT_EQ(keys(first, own).back(), "w/wgrad/grad_output/float8e4m3fn#0");
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

// Each use of an operand is written as the recipe says; equal copies become
// one.
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

// For each copy the name of its source and its blocks, "x 1x128".
std::vector<std::string> Blocks(const Graph& graph) {
  std::vector<std::string> blocks;
  for (const Node& node : graph.nodes()) {
    if (!node.IsOurs("QuantizeBlock")) continue;
    blocks.push_back(Concat(node.in(0)->name, " ", node.Int("block_rows", -1),
                            "x", node.Int("block_columns", -1)));
  }
  return blocks;
}

std::unique_ptr<Graph> StepBy(const std::string& recipe) {
  auto graph = ParseGraph(kStep);
  Fp8Rewrite(*graph, {ParseRecipe(recipe)}, graph->Find("seed"),
             {{graph->Find("w"), graph->Find("dw")}});
  Verify(*graph);
  return graph;
}

// A matrix is read along its columns or its rows; square blocks serve both.
TEST(Fp8Rewrite, BlocksLieAlongTheSum) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(Blocks(*StepBy("rowwise")), (Texts{"x 1x0", "w 0x1", "seed 1x0",
                                               "w 1x0", "x 0x1", "seed 0x1"}));
  EXPECT_EQ(Blocks(*StepBy("rowwise_with_gw_hp")),
            (Texts{"x 1x0", "w 0x1", "seed 1x0", "w 0x0"}));
  EXPECT_EQ(
      Blocks(*StepBy("blockwise")),
      (Texts{"x 1x128", "w 128x128", "seed 1x128", "x 128x1", "seed 128x1"}));
  EXPECT_EQ(Blocks(*StepBy("mxfp8")), (Texts{"x 1x32", "w 32x1", "seed 1x32",
                                             "w 1x32", "x 32x1", "seed 32x1"}));
  auto graph = StepBy("blockwise");
  const Node& dx = *graph->Find("dx")->producer;
  EXPECT_TRUE(dx.IsOurs("ScaledMatMulBlock"));
  EXPECT_EQ(dx.Int("a_block_rows", -1), 1);
  EXPECT_EQ(dx.Int("a_block_columns", -1), 128);
  EXPECT_EQ(dx.Int("b_block_rows", -1), 128);
  EXPECT_EQ(dx.Int("b_block_columns", -1), 128);
}

TEST(Fp8Rewrite, RoundingGoesIntoTheNode) {
  for (auto [recipe, pow2] : {std::pair{"blockwise", 0},
                              {"rowwise", 1},
                              {"mxfp8", 1},
                              {"mxfp8,round:floor", 2},
                              {"tensorwise,round:p2", 1}}) {
    auto graph = StepBy(recipe);
    for (const Node& node : graph->nodes()) {
      EXPECT_FALSE(node.IsOurs("QuantizeTensor")) << recipe;
      if (!node.IsOurs("QuantizeBlock")) continue;
      EXPECT_EQ(node.Int("pow2", -1), pow2) << recipe;
      EXPECT_EQ(node.Int("scale_to", -1), 1) << recipe;
    }
  }
}

// The second copies of x and of the gradient come from the first ones.
TEST(Fp8Rewrite, RequantizingReadsTheFirstCopy) {
  auto graph = StepBy("rowwise,tr:requantize");
  std::vector<std::string> from;
  for (const Node& node : graph->nodes()) {
    if (!node.IsOurs("QuantizeBlock")) continue;
    const Node* decoded = node.in(0)->producer;
    if (decoded && decoded->IsOurs("DequantizeBlock")) {
      const Node& first = *decoded->in(0)->producer;
      from.push_back(Concat(first.in(0)->name, " ", first.Int("block_rows", -1),
                            " ", decoded->Int("block_rows", -1), " ",
                            node.Int("block_rows", -1)));
    }
  }
  EXPECT_EQ(from,
            (std::vector<std::string>{"w 0 0 1", "x 1 1 0", "seed 1 1 0"}));
}

TEST(Fp8Rewrite, StaticScalesAreGivenAndStay) {
  Fp8Spec spec = {ParseRecipe("static")};
  auto rewrite = [&](Graph& graph) {
    return Fp8Rewrite(graph, spec, graph.Find("seed"),
                      {{graph.Find("w"), graph.Find("dw")}});
  };
  auto graph = ParseGraph(kStep);
  EXPECT_THROW(rewrite(*graph), Error);
  spec.scales = {"scales.json",
                 {{"w/forward/input/float8e4m3fn#0", 0.5f},
                  {"w/forward/weight/float8e4m3fn#0", 0.25f}}};
  graph = ParseGraph(kStep);
  EXPECT_THROW(rewrite(*graph), Error);
  spec.scales.by_key["w/dgrad/grad_output/float8e5m2#0"] = 2;
  graph = ParseGraph(kStep);
  Fp8Plan plan = rewrite(*graph);
  const auto* scale = plan.scale->data.data<float>();
  EXPECT_EQ(std::vector<float>(scale, scale + 3),
            (std::vector<float>{0.5f, 0.25f, 2}));
  EXPECT_EQ(plan.history, nullptr);
  // Their amaxes are still checked for values that are not finite.
  EXPECT_EQ(plan.amaxes.size(), 3u);
  AttachScaleUpdate(*graph, spec.recipe, plan, AmaxVector(*graph, plan),
                    nullptr);
  EXPECT_TRUE(graph->state.empty());
}

// The static scales that a rewrite of `text` finds.
std::vector<float> StaticScalesOf(const char* text, const Fp8Spec& spec) {
  auto graph = ParseGraph(text);
  Fp8Plan plan = Fp8Rewrite(*graph, spec, nullptr, {});
  const auto* scale = plan.scale->data.data<float>();
  return {scale, scale + plan.slots.size()};
}

// A filter keeps w out. It reads r first, and so names r's scale.
TEST(Fp8Rewrite, ScalesHaveOneNameUnderAnyFilter) {
  const char* text = R"(
input x: float[4,16]
param v: float[16,16]
param w: float[16,16]
r: float[4,16] = Relu(x)
rw: float[4,16] = MatMul(r, w)
xv: float[4,16] = MatMul(x, v)
rv: float[4,16] = MatMul(r, v)
output rw
output xv
output rv
)";
  for (const char* recipe : {"delayed", "static"}) {
    Fp8Spec spec = {ParseRecipe(recipe)};
    spec.scales = {"scales.json",
                   {{"v/forward/input/float8e4m3fn#0", 0.5f},
                    {"v/forward/weight/float8e4m3fn#0", 0.25f},
                    {"w/forward/input/float8e4m3fn#0", 2.0f}}};
    spec.filter.exclude = {"w"};
    auto graph = ParseGraph(text);
    Fp8Plan plan = Fp8Rewrite(*graph, spec, nullptr, {});
    EXPECT_EQ(Keys(plan),
              (std::vector<std::string>{"v/forward/input/float8e4m3fn#0",
                                        "v/forward/weight/float8e4m3fn#0",
                                        "w/forward/input/float8e4m3fn#0"}));
    EXPECT_EQ(SlotRead(*graph, "r"), 2);
    graph = ParseGraph(text);
    EXPECT_EQ(Keys(Fp8Rewrite(*graph, spec, nullptr, {}, &plan.slots)),
              Keys(plan));
    EXPECT_EQ(SlotRead(*graph, "r"), 2);
    EXPECT_EQ(SlotRead(*graph, "x"), 0);
  }
}

// An evaluation may have its layers in another order than the training step.
// Static scales may come from such a graph.
TEST(Fp8Rewrite, ScalesKeepTheirNamesInAnotherOrder) {
  const std::string v = "xv: float[4,16] = MatMul(x, v)\n",
                    w = "xw: float[4,16] = MatMul(x, w)\n";
  auto graph = [](const std::string& nodes) {
    return ParseGraph(
        "\ninput x: float[4,16]\nparam v: float[16,16]\n"
        "param w: float[16,16]\n" +
        nodes + "output xv\noutput xw\n");
  };
  for (const char* excluded : {"", "v", "w"}) {
    Fp8Spec spec = {ParseRecipe("delayed")};
    if (*excluded) spec.filter.exclude = {excluded};
    auto step = graph(v + w), eval = graph(w + v);
    Fp8Plan plan = Fp8Rewrite(*step, spec, nullptr, {});
    int64_t slot = SlotRead(*step, "x");
    EXPECT_EQ(Keys(plan)[static_cast<size_t>(slot)],
              "v/forward/input/float8e4m3fn#0");
    Fp8Plan other = Fp8Rewrite(*eval, spec, nullptr, {}, &plan.slots);
    EXPECT_EQ(Keys(other), Keys(plan));
    EXPECT_EQ(SlotRead(*eval, "x"), slot);
  }
  Fp8Spec spec = {ParseRecipe("static")};
  spec.filter.exclude = {"v"};
  spec.scales = {"scales.json",
                 {{"v/forward/input/float8e4m3fn#0", 0.5f},
                  {"w/forward/weight/float8e4m3fn#0", 0.25f}}};
  auto eval = graph(w + v);
  EXPECT_EQ(Fp8Rewrite(*eval, spec, nullptr, {}).slots[0].scale, 0.5f);
}

// x is read under two recipes; so it has a scale for each.
TEST(Fp8Rewrite, ScalesOfAMatrixMayMoveOrStay) {
  const char* text = R"(
input x: float[4,16]
param v: float[16,16]
param w: float[16,16]
xv: float[4,16] = MatMul(x, v)
xw: float[4,16] = MatMul(x, w)
output xv
output xw
)";
  for (const char* main : {"delayed", "off"}) {
    Fp8Spec spec = {ParseRecipe(main)};
    spec.filter.recipes = {{"w", ParseRecipe("static")}};
    spec.scales = {"scales.json",
                   {{"v/forward/input/float8e4m3fn#0", 0.5f},
                    {"w/forward/weight/float8e4m3fn#0", 0.25f}}};
    auto graph = ParseGraph(text);
    Fp8Plan plan = Fp8Rewrite(*graph, spec, nullptr, {});
    bool both = spec.recipe.enabled();
    ASSERT_EQ(plan.slots.size(), both ? 4u : 2u);
    EXPECT_EQ(plan.slots[both ? 2 : 0].scale, 0.5f);
    EXPECT_EQ(plan.slots[both ? 3 : 1].scale, 0.25f);
    if (!both) continue;
    EXPECT_EQ(plan.slots[0].scaling, Scaling::kDelayed);
    EXPECT_NE(plan.slots[0].amax, nullptr);
    EXPECT_NE(plan.slots[0].Key(), plan.slots[2].Key());
    graph = ParseGraph(text);
    Fp8Plan again = Fp8Rewrite(*graph, spec, nullptr, {}, &plan.slots);
    EXPECT_EQ(SlotsRead(*graph, "x"), (std::vector<int64_t>{0, 2}));
    EXPECT_NE(again.slots[0].amax, nullptr);
    EXPECT_EQ(again.slots[2].amax, nullptr);
  }
}

// W @ x, where x has leading axes.
TEST(Fp8Rewrite, LayersThatReadTheRightOperandShareItsCopy) {
  auto graph = ParseGraph(R"(
input x: float[2,16,4]
param v: float[16,16]
param w: float[16,16]
y: float[2,16,4] = MatMul(v, x)
z: float[2,16,4] = MatMul(w, x)
output y
output z
)");
  Fp8Plan plan = Fp8Rewrite(*graph, {ParseRecipe("delayed")}, nullptr, {});
  EXPECT_EQ(Keys(plan),
            (std::vector<std::string>{"v/forward/input/float8e4m3fn#0",
                                      "v/forward/weight/float8e4m3fn#0",
                                      "w/forward/weight/float8e4m3fn#0"}));
  EXPECT_EQ(std::ranges::count_if(
                graph->nodes(),
                [](const Node& node) { return node.IsOurs("QuantizeWith"); }),
            3);
}

// A product of two weights, as in LoRA.
TEST(Fp8Rewrite, AWeightHasNoOtherWeightsStaticScale) {
  const char* text = R"(
input x: float[4,32]
param a: float[32,8]
param b: float[8,16]
ab: float[32,16] = MatMul(a, b)
y: float[4,16] = MatMul(x, ab)
output y
)";
  Fp8Spec spec = {ParseRecipe("static")};
  spec.scales = {"scales.json",
                 {{"b/forward/input/float8e4m3fn#0", 0.5f},
                  {"b/forward/weight/float8e4m3fn#0", 0.25f}}};
  EXPECT_EQ(StaticScalesOf(text, spec), (std::vector<float>{0.5f, 0.25f}));
  spec.scales.by_key = {{"b/forward/input/float8e4m3fn#0", 0.5f},
                        {"a/forward/weight/float8e4m3fn#0", 0.25f}};
  EXPECT_THROW(StaticScalesOf(text, spec), Error);
}

}  // namespace
}  // namespace onnx_fp8
