// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

TEST(Schedule, ParsesItsTextForm) {
  Schedule s = ParseSchedule("cosine:warmup=100,min=0.1");
  EXPECT_EQ(s.kind, Schedule::Kind::kCosine);
  EXPECT_EQ(s.warmup, 100);
  EXPECT_EQ(s.min, 0.1);
  for (const char* text : {"constant", "constant:warmup=7", "linear:min=0.25",
                           "cosine:warmup=100,min=0.1",
                           "wsd:warmup=100,decay=20,min=0.1", "wsd:decay=7"}) {
    EXPECT_EQ(ToString(ParseSchedule(text)), text);
  }
}

TEST(Schedule, RefusesOtherText) {
  for (const char* text :
       {"", "step", "linear:", "linear:warmup", "linear:warmup=", "linear:,",
        "linear:warmup=-1", "linear:warmup=1.5", "linear:min=1.5",
        "linear:min=nan", "constant:min=0.1", "linear:warmup=1,",
        "linear:cool=1", "linear:decay=1", "wsd", "wsd:min=0.1", "wsd:decay=0",
        "wsd:decay=1.5", "linear:warmup=99999999999999999999"}) {
    EXPECT_THROW(ParseSchedule(text), Error) << text;
  }
}

TEST(Schedule, Constant) {
  Schedule s = ParseSchedule("constant:warmup=4");
  EXPECT_DOUBLE_EQ(LearningRate(s, 2, 1, 10), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(s, 2, 4, 10), 2);
  EXPECT_DOUBLE_EQ(LearningRate(s, 2, 5, 10), 2);
  EXPECT_DOUBLE_EQ(LearningRate(s, 2, 10, 10), 2);
}

TEST(Schedule, Linear) {
  Schedule s = ParseSchedule("linear:warmup=2,min=0.5");
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 1, 6), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 2, 6), 1);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 3, 6), 1);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 4, 6), 0.875);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 6, 6), 0.625);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 99, 6), 0.5);
}

TEST(Schedule, CosineIsPyTorchsAnnealing) {
  Schedule s = ParseSchedule("cosine:min=0.1");
  const int total = 10;
  for (int t = 1; t <= total; ++t) {
    // CosineAnnealingLR's closed form at epoch t - 1.
    double expected =
        0.3 +
        (3 - 0.3) * (1 + std::cos(std::numbers::pi * (t - 1) / total)) / 2;
    EXPECT_NEAR(LearningRate(s, 3, t, total), expected, 1e-15);
  }
}

// transformers.get_wsd_schedule with decay_type="linear" at step t - 1:
// stable for 6 of 10 steps, then 1 - (t - 7) / 4, scaled to 0.2 … 1.
TEST(Schedule, WsdDecaysInTheLastSteps) {
  Schedule s = ParseSchedule("wsd:decay=4,min=0.2");
  for (int t = 1; t <= 6; ++t) EXPECT_EQ(LearningRate(s, 3, t, 10), 3) << t;
  const double last[] = {1, 0.8, 0.6, 0.4};
  for (int t = 7; t <= 10; ++t) {
    EXPECT_NEAR(LearningRate(s, 3, t, 10), 3 * last[t - 7], 1e-15) << t;
  }
  EXPECT_NEAR(LearningRate(s, 3, 11, 10), 3 * 0.2, 1e-15);
  // A longer run stays longer; a warm-up comes first.
  EXPECT_EQ(LearningRate(s, 3, 10, 20), 3);
  s = ParseSchedule("wsd:warmup=2,decay=4");
  EXPECT_EQ(LearningRate(s, 3, 1, 10), 1.5);
  EXPECT_EQ(LearningRate(s, 3, 3, 10), 3);
  EXPECT_EQ(LearningRate(s, 3, 9, 10), 1.5);
  // It is linear's, where nothing is stable.
  for (const char* text : {"wsd:warmup=2,decay=8", "wsd:warmup=2,decay=99"}) {
    for (int t = 1; t <= 12; ++t) {
      EXPECT_EQ(LearningRate(ParseSchedule(text), 1, t, 10),
                LearningRate(ParseSchedule("linear:warmup=2"), 1, t, 10));
    }
  }
}

TEST(Schedule, WarmupAsLongAsTheRun) {
  Schedule s = ParseSchedule("cosine:warmup=5");
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 5, 5), 1);
  EXPECT_DOUBLE_EQ(LearningRate(s, 1, 6, 5), 1);
}

}  // namespace
}  // namespace onnx_fp8
