// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/auto_filter.h"

#include <gtest/gtest.h>

#include "base/check.h"
#include "graph/fp8/gemm_decision.h"
#include "onnx_fp8/recipe_text.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

Prediction OnH100(const char* recipe, int64_t m, int64_t k, int64_t n) {
  return PredictLayer(LoadSpeedTable("h100"), ParseRecipe(recipe), m, k, n);
}

// torchao's own boundaries (test/float8/test_auto_filter.py), M unknown.
TEST(AutoFilter, TorchaosThresholds) {
  struct Case {
    const char* recipe;
    int64_t k, n;
    const char* reason;
  };
  for (const Case& c : {
           Case{"tensorwise", 4096, 1024, "h100: K <= 4096, N <= 1024"},
           Case{"tensorwise", 4112, 1024, ""},
           Case{"tensorwise", 4096, 1040, ""},
           Case{"delayed", 4096, 1024, "h100: K <= 4096, N <= 1024"},
           Case{"static", 4112, 1024, ""},
           Case{"tensorwise", 8200, 8192, "h100: K is no multiple of 16"},
           Case{"tensorwise", 8192, 8200, "h100: N is no multiple of 16"},
           Case{"rowwise", 32768, 2048, "h100: N <= 2048"},
           Case{"rowwise", 32768, 2064, ""},
           Case{"rowwise", 1024, 32768, "h100: K <= 1024"},
           Case{"rowwise", 2048, 4096, "h100: N <= 4096, K <= 2048"},
           Case{"rowwise", 2048, 4112, ""},
           Case{"rowwise", 2064, 4096, ""},
           Case{"rowwise_with_gw_hp", 1024, 32768, "h100: K <= 1024"},
       }) {
    Prediction p = OnH100(c.recipe, -1, c.k, c.n);
    EXPECT_EQ(p.reason, c.reason) << c.recipe << c.k << " " << c.n;
    EXPECT_EQ(p.faster, p.reason.empty());
    EXPECT_FALSE(p.speedup);
  }
  // Recipes for whole tensors have no table, so M has no effect.
  EXPECT_FALSE(OnH100("tensorwise", 16384, 4096, 1024).faster);
}

TEST(AutoFilter, RowsByTheTable) {
  Prediction p = OnH100("rowwise", 8192, 8192, 8192);
  EXPECT_TRUE(p.faster);
  EXPECT_EQ(p.speedup, 1.20);
  EXPECT_EQ(p.reason, "h100: 1.20x");
  // By the thresholds on K and N this layer would be taken.
  p = OnH100("rowwise", 2048, 8192, 8192);
  EXPECT_FALSE(p.faster);
  EXPECT_EQ(p.speedup, 0.82);
  // Exactly 1 is taken.
  EXPECT_TRUE(OnH100("rowwise", 8192, 4096, 4096).faster);
  // Between 0.84 (4096, 4096, 4096) and 1.00 (8192): the middle in logarithms.
  p = OnH100("rowwise", 5793, 4096, 4096);
  EXPECT_NEAR(*p.speedup, 0.92, 1e-4);
  EXPECT_EQ(p.reason, "h100: 0.92x");
  p = OnH100("rowwise", 64, 64, 64);
  EXPECT_EQ(p.speedup, 0.42);
  // Two products of three gain at most 1.5.
  EXPECT_EQ(OnH100("rowwise", 32768, 16384, 32768).speedup, 1.73);
  EXPECT_EQ(OnH100("rowwise_with_gw_hp", 32768, 16384, 32768).speedup, 1.5);
}

TEST(AutoFilter, H100KnowsNoBlocks) {
  SpeedTable h100 = LoadSpeedTable("h100");
  EXPECT_THROW(CheckKnown(h100, ParseRecipe("blockwise")), Error);
  EXPECT_THROW(CheckKnown(h100, ParseRecipe("mxfp8")), Error);
  for (const char* recipe : {"off", "tensorwise", "delayed", "static",
                             "rowwise", "rowwise_with_gw_hp"}) {
    CheckKnown(h100, ParseRecipe(recipe));
  }
}

// A table in which all products are four times as fast in FP8.
SpeedTable Measured(double quantize) {
  SpeedTable table;
  table.source = "here";
  table.fp32 = {{1}, {1}, {1}, {1e9}};
  table.fp8 = {{1}, {1}, {1}, {4e9}};
  table.quantize = quantize;
  return table;
}

TEST(AutoFilter, MeasuredCountsProductsAndQuantizing) {
  auto speedup = [](const char* recipe, double quantize, int64_t m) {
    Prediction p =
        PredictLayer(Measured(quantize), ParseRecipe(recipe), m, 100, 200);
    EXPECT_EQ(p.faster, *p.speedup >= 1) << recipe;
    return *p.speedup;
  };
  // Products: 2 * 10 * 100 * 200 = 4e5 operations each; in all 3 * 4e-4 s
  // before, 3e-4 s after.
  EXPECT_DOUBLE_EQ(speedup("tensorwise", 1e30, 10), 4);
  EXPECT_DOUBLE_EQ(speedup("rowwise_with_gw_hp", 1e30, 10), 1.2e-3 / 6e-4);
  // 10 * 100 + 100 * 200 + 10 * 200 = 23000 elements, in 2.3e-4 s.
  EXPECT_DOUBLE_EQ(speedup("tensorwise", 1e8, 10), 1.2e-3 / 5.3e-4);
  // Rows: each operand is quantized twice.
  EXPECT_DOUBLE_EQ(speedup("rowwise", 1e8, 10), 1.2e-3 / 7.6e-4);
  // Square blocks of the weight serve both uses: 26000.
  EXPECT_DOUBLE_EQ(speedup("blockwise", 1e8, 10), 1.2e-3 / 5.6e-4);
  // wgrad's input and gradient are not quantized: 43000.
  EXPECT_DOUBLE_EQ(speedup("rowwise_with_gw_hp", 1e8, 10),
                   1.2e-3 / (6e-4 + 4.3e-4));
  EXPECT_LT(speedup("tensorwise", 1e7, 10), 1);
}

TEST(AutoFilter, MeasuredTakesAnOpenMAsLarge) {
  SpeedTable table = Measured(1e30);
  table.fp32 = {{1, 1000}, {1}, {1}, {1e9, 1e9}};
  table.fp8 = {{1, 1000}, {1}, {1}, {5e8, 2e9}};
  Recipe recipe = ParseRecipe("tensorwise");
  EXPECT_EQ(PredictLayer(table, recipe, -1, 1, 1).speedup,
            PredictLayer(table, recipe, 1000, 1, 1).speedup);
}

// The thresholds of h100 and the recipe have no effect.
TEST(AutoFilter, MeasuredLayersByTheirFigures) {
  SpeedTable table;
  table.source = "here";
  table.speedup = {{1, 1000}, {1}, {1, 4}, {0.5, 1, 1.004, 3}};
  for (const char* name : {"tensorwise", "rowwise_with_gw_hp", "mxfp8"}) {
    Recipe recipe = ParseRecipe(name);
    CheckKnown(table, recipe);
    Prediction p = PredictLayer(table, recipe, 1, 7, 1);
    EXPECT_FALSE(p.faster);
    EXPECT_EQ(p.speedup, 0.5);
    EXPECT_EQ(p.reason, "measured: 0.50x");
    // Exactly 1 is taken.
    EXPECT_TRUE(PredictLayer(table, recipe, 1, 7, 4).faster);
    EXPECT_EQ(PredictLayer(table, recipe, 1000, 64, 64).speedup, 3);
    EXPECT_EQ(PredictLayer(table, recipe, 1, 7, 2).speedup, 0.75);
    EXPECT_EQ(PredictLayer(table, recipe, -1, 7, 1).speedup, 1.004);
  }
}

// A layer that is slower as a whole stays in high precision as a whole.
TEST(AutoFilter, DecidesOnLayers) {
  auto graph = ParseGraph(R"(
input x: float[16,64]
const seed: float[16,32]
param a: float[64,64]
param b: float[64,32]
y: float[16,64] = Gemm(x, a)
z: float[16,32] = Gemm(y, b)
dy: float[16,64] = Gemm<transB=1>(seed, b)
dw: float[64,32] = Gemm<transA=1>(y, seed)
output z
output dy
output dw
)");
  auto decide = [&](Fp8Spec spec) {
    return DecideGemms(ClassifyGemms(*graph, graph->Find("seed"),
                                     {{graph->Find("b"), graph->Find("dw")}}),
                       spec);
  };
  SpeedTable table = Measured(1e30);
  // Forward products with N = 32 are slow, but the layer of `a` as a whole is
  // not.
  table.fp32 = {{1}, {1}, {32, 64}, {1e9, 1e9}};
  table.fp8 = {{1}, {1}, {32, 64}, {1e8, 4e9}};
  Fp8Spec spec = {ParseRecipe("tensorwise")};
  spec.filter.speeds = std::make_shared<const SpeedTable>(table);
  auto decisions = decide(spec);
  EXPECT_TRUE(decisions[0].fp8);
  EXPECT_EQ(decisions[0].reason, "linear");
  EXPECT_DOUBLE_EQ(*decisions[0].speedup, 4);
  for (size_t i : {1, 2, 3}) {
    EXPECT_FALSE(decisions[i].fp8) << i;
    EXPECT_EQ(decisions[i].reason, "measured: 0.15x") << i;
    EXPECT_NEAR(*decisions[i].speedup, 3 / (20 + 0.25), 0.01) << i;
  }
  // Another recipe, another decision.
  spec.filter.recipes = {{"b", ParseRecipe("i:hp,w:hp,go:dyn_ten_e4m3,"
                                           "w_gi:dyn_ten_e4m3,i_gw:hp,"
                                           "go_gw:hp")}};
  decisions = decide(spec);
  EXPECT_EQ(decisions[1].reason, "forward in high precision");
  EXPECT_TRUE(decisions[2].fp8);
  EXPECT_NEAR(*decisions[2].speedup, 3 / 2.25, 1e-9);
  // Without M, h100's table of sizes is not used.
  spec = {ParseRecipe("rowwise")};
  spec.filter.speeds =
      std::make_shared<const SpeedTable>(LoadSpeedTable("h100"));
  EXPECT_EQ(decide(spec)[0].reason, "h100: 0.42x");
  spec.any_m = true;
  EXPECT_EQ(decide(spec)[0].reason, "h100: N <= 2048");
  // A layer that the filter keeps out has no prediction.
  spec.filter.exclude = {"a"};
  EXPECT_EQ(decide(spec)[0].reason, "excluded by a");
  EXPECT_FALSE(decide(spec)[0].speedup);
}

// For W x, the layer's M and N are the product's N and M.
TEST(AutoFilter, AWeightOnTheLeft) {
  auto graph = ParseGraph(R"(
input x: float[64,16]
param w: float[32,64]
y: float[32,16] = Gemm(w, x)
output y
)");
  SpeedTable table = Measured(1e30);
  table.fp32 = {{16, 32}, {1}, {16, 32}, {1e9, 1e9, 1e9, 1e9}};
  table.fp8 = {{16, 32}, {1}, {16, 32}, {1e6, 4e9, 1e6, 1e6}};
  Fp8Spec spec = {
      ParseRecipe("i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:hp,w_gi:hp,"
                  "i_gw:hp,go_gw:hp")};
  spec.filter.speeds = std::make_shared<const SpeedTable>(table);
  auto decisions = DecideGemms(ClassifyGemms(*graph, nullptr, {}), spec);
  EXPECT_NEAR(*decisions[0].speedup, 3 / 2.25, 1e-9);
}

}  // namespace
}  // namespace onnx_fp8
