// SPDX-License-Identifier: Apache-2.0
#include "data/weighted_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kDraws = 65536;

WeightedOrder Order(uint64_t seed = 3) {
  return WeightedOrder({5, 7, 40}, {6, 3, 1}, seed, true, 0);
}

// Which source a sample belongs to.
int SourceOf(int64_t sample) { return sample < 5 ? 0 : sample < 12 ? 1 : 2; }

TEST(WeightedOrder, EachPeriodHasTheShares) {
  WeightedOrder order = Order();
  EXPECT_NEAR(order.Share(0), 0.6, 1.0 / kDraws);
  for (int64_t period : {0, 4}) {
    std::map<int, int64_t> draws;
    for (int64_t i = 0; i < kDraws; ++i) {
      ++draws[SourceOf(order.At(period * kDraws + i))];
    }
    EXPECT_NEAR(static_cast<double>(draws[0]), 0.6 * kDraws, 1);
    EXPECT_NEAR(static_cast<double>(draws[1]), 0.3 * kDraws, 1);
    EXPECT_NEAR(static_cast<double>(draws[2]), 0.1 * kDraws, 1);
  }
}

// In any short stretch, too: the draws of a source do not come in one piece.
TEST(WeightedOrder, SourcesAreMixed) {
  WeightedOrder order = Order();
  int64_t of_first = 0;
  for (int64_t i = 0; i < 2000; ++i) of_first += SourceOf(order.At(i)) == 0;
  EXPECT_NEAR(static_cast<double>(of_first) / 2000, 0.6, 0.05);
}

// A source ends its pass before a sample comes again, over periods as well.
TEST(WeightedOrder, ASourceGivesWholePasses) {
  WeightedOrder order = Order();
  std::vector<int64_t> second;
  for (int64_t i = kDraws - 300; i < kDraws + 300; ++i) {
    const int64_t sample = order.At(i);
    if (SourceOf(sample) == 1) second.push_back(sample);
  }
  std::vector<int64_t> before;
  for (int64_t i = 0; i < kDraws - 300; ++i) {
    const int64_t sample = order.At(i);
    if (SourceOf(sample) == 1) before.push_back(sample);
  }
  const size_t first = (7 - before.size() % 7) % 7;
  ASSERT_GT(second.size(), first + 70);
  for (size_t pass = 0; pass < 10; ++pass) {
    const auto begin =
        second.begin() + static_cast<std::ptrdiff_t>(first + 7 * pass);
    std::vector<int64_t> sorted(begin, begin + 7);
    std::ranges::sort(sorted);
    EXPECT_EQ(sorted, (std::vector<int64_t>{5, 6, 7, 8, 9, 10, 11})) << pass;
  }
}

TEST(WeightedOrder, AnyDrawCanBeAskedFor) {
  WeightedOrder forward = Order(), backward = Order(), other = Order(4);
  std::vector<int64_t> draws;
  int64_t same = 0;
  for (int64_t i = kDraws - 50; i < kDraws + 50; ++i) {
    draws.push_back(forward.At(i));
    same += other.At(i) == draws.back();
  }
  EXPECT_LT(same, 60);  // another seed draws others
  for (int64_t i = kDraws + 49; i >= kDraws - 50; --i) {
    EXPECT_EQ(backward.At(i), draws[static_cast<size_t>(i - kDraws + 50)]) << i;
  }
}

TEST(WeightedOrder, KeepsTheOrderOfSourcesWithoutAShuffle) {
  WeightedOrder order({3, 4}, {1, 1}, 1, false, 0);
  std::vector<int64_t> first;
  for (int64_t i = 0; first.size() < 7; ++i) {
    const int64_t sample = order.At(i);
    if (sample < 3) first.push_back(sample);
  }
  EXPECT_EQ(first, (std::vector<int64_t>{0, 1, 2, 0, 1, 2, 0}));
}

TEST(WeightedOrder, RefusesWeightsWithoutADraw) {
  const auto make = [](double weight) {
    return ErrorOf([&] { WeightedOrder({1, 1}, {1, weight}, 0, true, 0); });
  };
  for (double weight : {0.0, -1.0, double{INFINITY}, double{NAN}}) {
    EXPECT_NE(make(weight).find("expected finite numbers above 0"),
              std::string::npos)
        << weight;
  }
  EXPECT_NE(make(1e-6).find("expected at least 1/65536"), std::string::npos);
  EXPECT_NE(make(1e300).find("expected at least 1/65536"), std::string::npos);
  EXPECT_EQ(make(1e-4), "");
}

}  // namespace
}  // namespace onnx_fp8
