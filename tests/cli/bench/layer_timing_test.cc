// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/layer_timing.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

TEST(LayerTimingTest, HighPrecisionKeepsOtherOptions) {
  SessionOptions options;
  options.dtype = DType::kBFloat16;
  options.recipe = ParseRecipe("static");
  options.filter.recipes = {{"linear", ParseRecipe("mxfp8")}};
  options.scales = "scales.json";
  options = HighPrecision(options);
  EXPECT_EQ(options.dtype, DType::kBFloat16);
  EXPECT_EQ(options.recipe, ParseRecipe("off"));
  EXPECT_TRUE(options.filter.recipes.empty());
  EXPECT_EQ(options.scales, "");
}

TEST(LayerTimingTest, TimesBothForEachPairOfRuns) {
  SessionOptions options;
  options.recipe = ParseRecipe("delayed");
  size_t pairs = 0;
  RivalTimes times = TimeLayer(Surroundings::kNormAndSigmoid, {8, 16, 32},
                               options, 0, [&] { ++pairs; });
  EXPECT_EQ(times.first.size(), kLeastRuns);
  EXPECT_EQ(times.second.size(), kLeastRuns);
  EXPECT_EQ(pairs, kLeastRuns + 1);
}

}  // namespace
}  // namespace onnx_fp8
