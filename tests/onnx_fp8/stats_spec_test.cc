// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/stats_spec.h"

#include <gtest/gtest.h>

#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

TEST(StatsSpec, ReadsStepsAndLayers) {
  const StatsSpec spec = ParseStats("every=100,layers=*mlp*,blocks.[0-3].*");
  EXPECT_EQ(spec.every, 100);
  EXPECT_EQ(spec.layers, (std::vector<std::string>{"*mlp*", "blocks.[0-3].*"}));
  EXPECT_TRUE(ParseStats("every=1").layers.empty());
  EXPECT_EQ(ParseStats("layers=a,every=3").every, 3);
}

TEST(StatsSpec, EachNthStepMeasures) {
  const StatsSpec spec = ParseStats("every=3");
  EXPECT_FALSE(spec.Measures(1));
  EXPECT_TRUE(spec.Measures(3));
  EXPECT_TRUE(spec.Measures(6));
  EXPECT_FALSE(ParseStats("").Measures(1));
}

TEST(StatsSpec, RefusesOtherText) {
  for (const char* text :
       {"100", "every", "every=", "every=0", "every=-1", "every=x", "layers=*",
        "every=1,layers=", "every=1,", "every=1,a", "every=1,layers=a,,b"}) {
    EXPECT_THROW(ParseStats(text), OptionError) << text;
  }
}

}  // namespace
}  // namespace onnx_fp8
