// SPDX-License-Identifier: Apache-2.0
#include "training/run/batch_groups.h"

#include <gtest/gtest.h>

#include <vector>

namespace onnx_fp8 {
namespace {

using Pairs = std::vector<std::pair<int64_t, int64_t>>;

Pairs FirstSteps(const BatchGroups& groups, int64_t steps) {
  Pairs pairs;
  for (int64_t step = 0; step < steps; ++step) {
    auto [first, count] = groups.OfStep(step);
    pairs.emplace_back(first, count);
  }
  return pairs;
}

TEST(BatchGroups, TheLastOfAnEpochMayBeSmaller) {
  const BatchGroups groups(3, 7);
  EXPECT_EQ(groups.steps_per_epoch(), 3);
  EXPECT_EQ(groups.rest(), 1);
  EXPECT_EQ(FirstSteps(groups, 7),
            (Pairs{{0, 3}, {3, 3}, {6, 1}, {7, 3}, {10, 3}, {13, 1}, {14, 3}}));
}

TEST(BatchGroups, AnEpochMayBeWholeGroupsOrLessThanOne) {
  EXPECT_EQ(FirstSteps({2, 4}, 3), (Pairs{{0, 2}, {2, 2}, {4, 2}}));
  EXPECT_EQ(BatchGroups(2, 4).rest(), 0);
  EXPECT_EQ(FirstSteps({4, 2}, 3), (Pairs{{0, 2}, {2, 2}, {4, 2}}));
  EXPECT_EQ(BatchGroups(4, 2).rest(), 2);
  EXPECT_EQ(FirstSteps({1, 2}, 3), (Pairs{{0, 1}, {1, 1}, {2, 1}}));
}

TEST(BatchGroups, WithoutEpochsAllAreWhole) {
  const BatchGroups groups(3, 0);
  EXPECT_EQ(FirstSteps(groups, 3), (Pairs{{0, 3}, {3, 3}, {6, 3}}));
  EXPECT_EQ(groups.steps_per_epoch(), 0);
  EXPECT_EQ(groups.rest(), 0);
}

}  // namespace
}  // namespace onnx_fp8
