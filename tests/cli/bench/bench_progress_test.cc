// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/bench_progress.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

TEST(BenchProgressTest, MeasurementsTakeTheirSeconds) {
  EXPECT_EQ(SecondsLeft({1, 1, 1}, 0, 0, 2, 0), 6);
  EXPECT_EQ(SecondsLeft({1, 1, 1}, 1, 0.5, 2, 0), 3.5);
  EXPECT_EQ(SecondsLeft({1, 1, 1}, 1, 5, 2, 0), 2);
}

// Four rounds of 100 operations at 10 operations per second.
TEST(BenchProgressTest, LargeOnesTakeLonger) {
  EXPECT_EQ(SecondsLeft({1, 100}, 0, 0, 2, 10), 42);
  EXPECT_EQ(SecondsLeft({1, 100}, 1, 10, 2, 10), 30);
}

}  // namespace
}  // namespace onnx_fp8
