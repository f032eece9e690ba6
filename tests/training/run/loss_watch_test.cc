// SPDX-License-Identifier: Apache-2.0
#include "training/run/loss_watch.h"

#include <gtest/gtest.h>

#include <limits>

namespace onnx_fp8 {
namespace {

TEST(LossWatch, JudgesByTheMedianOfTheLossesBefore) {
  LossWatch watch(5);
  for (int i = 1; i <= 8; ++i) EXPECT_EQ(watch.Jumped(i == 4 ? 900 : i), 0);
  // 1 2 3 5 6 7 8 900: the lower one of the two in the middle.
  EXPECT_EQ(watch.Jumped(25), 0);
  EXPECT_EQ(watch.Jumped(30.5), 6);
}

TEST(LossWatch, ForgetsOldLosses) {
  LossWatch watch(2);
  for (int i = 0; i < 32; ++i) EXPECT_EQ(watch.Jumped(1), 0);
  EXPECT_EQ(watch.Jumped(2.5), 1);
  for (int i = 0; i < 17; ++i) watch.Jumped(100);
  EXPECT_EQ(watch.Jumped(150), 0);
  EXPECT_EQ(watch.Jumped(250), 100);
}

TEST(LossWatch, JudgesNoOthers) {
  LossWatch off(0), negative(2), watch(2);
  const double infinity = std::numeric_limits<double>::infinity();
  for (int i = 0; i < 8; ++i) {
    off.Jumped(1);
    negative.Jumped(-1);
    watch.Jumped(1);
  }
  EXPECT_EQ(off.Jumped(1e9), 0);
  EXPECT_EQ(negative.Jumped(1e9), 0);
  EXPECT_EQ(watch.Jumped(infinity), 0);
  EXPECT_EQ(watch.Jumped(3), 1);
}

}  // namespace
}  // namespace onnx_fp8
