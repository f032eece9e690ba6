// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/timing.h"

#include <gtest/gtest.h>

#include <string>

namespace onnx_fp8 {
namespace {

TEST(TimingTest, RivalsRunByTurns) {
  std::string order;
  RivalTimes times = TimesByTurns([&] { order += 'a'; }, [&] { order += 'b'; },
                                  0, [&] { order += ' '; });
  EXPECT_EQ(order, "ab ab ab ab ");
  EXPECT_EQ(times.first.size(), kLeastRuns);
  EXPECT_EQ(times.second.size(), kLeastRuns);
}

TEST(TimingTest, TheFirstRunIsNotTimed) {
  size_t runs = 0;
  std::vector<double> times = Times([&] { ++runs; }, 0);
  EXPECT_EQ(times.size(), kLeastRuns);
  EXPECT_EQ(runs, kLeastRuns + 1);
}

TEST(TimingTest, MedianOfOddAndEvenCounts) {
  EXPECT_EQ(Median({5, 1, 3}), 3);
  EXPECT_EQ(Median({8, 1, 2, 4}), 3);
}

// The machine was busy during the second pair, and for one run of the third.
TEST(TimingTest, SpeedUpComparesNeighbors) {
  EXPECT_EQ(SpeedUp({{2, 20, 20, 2, 2}, {1, 10, 1, 1, 1}}), 2);
}

}  // namespace
}  // namespace onnx_fp8
