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
  const BatchGroups groups(3, 7, true);
  EXPECT_EQ(groups.rest(), 1);
  EXPECT_EQ(groups.StepsOf(2), 6);
  EXPECT_EQ(FirstSteps(groups, 7),
            (Pairs{{0, 3}, {3, 3}, {6, 1}, {7, 3}, {10, 3}, {13, 1}, {14, 3}}));
}

TEST(BatchGroups, AnEpochMayBeWholeGroupsOrLessThanOne) {
  EXPECT_EQ(FirstSteps({2, 4, true}, 3), (Pairs{{0, 2}, {2, 2}, {4, 2}}));
  EXPECT_EQ(BatchGroups(2, 4, true).rest(), 0);
  EXPECT_EQ(FirstSteps({4, 2, true}, 3), (Pairs{{0, 2}, {2, 2}, {4, 2}}));
  EXPECT_EQ(BatchGroups(4, 2, true).rest(), 2);
  EXPECT_EQ(BatchGroups(4, 2, true).StepsOf(3), 3);
  EXPECT_EQ(FirstSteps({1, 2, true}, 3), (Pairs{{0, 1}, {1, 1}, {2, 1}}));
}

TEST(BatchGroups, WithoutEpochsAllAreWhole) {
  const BatchGroups groups(3, 0, true);
  EXPECT_EQ(FirstSteps(groups, 3), (Pairs{{0, 3}, {3, 3}, {6, 3}}));
  EXPECT_EQ(groups.StepsOf(1), 0);
  EXPECT_EQ(groups.rest(), 0);
  EXPECT_FALSE(groups.EndsEpoch(3, 1));
}

TEST(BatchGroups, OfOneSizeCrossTheEndsOfEpochs) {
  const BatchGroups groups(4, 5, false);
  EXPECT_EQ(FirstSteps(groups, 4), (Pairs{{0, 4}, {4, 4}, {8, 4}, {12, 4}}));
  EXPECT_EQ(groups.rest(), 0);
  EXPECT_EQ(groups.StepsOf(1), 1);
  EXPECT_EQ(groups.StepsOf(4), 5);
}

std::vector<int64_t> EndsOfEpochs(const BatchGroups& groups, int64_t fewest) {
  std::vector<int64_t> ends;
  for (int64_t steps = 1; steps <= 12; ++steps) {
    if (groups.EndsEpoch(steps, fewest)) ends.push_back(steps);
  }
  return ends;
}

// Epochs of seven batches, in threes.
TEST(BatchGroups, EpochsEnd) {
  using Steps = std::vector<int64_t>;
  const BatchGroups smaller(3, 7, true), whole(3, 7, false);
  EXPECT_EQ(EndsOfEpochs(smaller, 1), (Steps{3, 6, 9, 12}));
  EXPECT_EQ(EndsOfEpochs(smaller, 3), (Steps{3, 6, 9, 12}));
  EXPECT_EQ(EndsOfEpochs(smaller, 4), (Steps{6, 12}));
  // After 7, 14, 21, 28 and 35 batches.
  EXPECT_EQ(EndsOfEpochs(whole, 1), (Steps{3, 5, 7, 10, 12}));
  EXPECT_EQ(EndsOfEpochs(whole, 4), (Steps{5, 10}));
}

}  // namespace
}  // namespace onnx_fp8
