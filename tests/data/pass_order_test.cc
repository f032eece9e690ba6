// SPDX-License-Identifier: Apache-2.0
#include "data/pass_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace onnx_fp8 {
namespace {

std::vector<int64_t> WholePass(PassOrder order, int64_t pass) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < order.size(); ++i) all.push_back(order.At(pass, i));
  return all;
}

std::vector<int64_t> UpTo(int64_t n) {
  std::vector<int64_t> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(i);
  return all;
}

TEST(PassOrder, KeepsTheOrderWithoutAShuffle) {
  EXPECT_EQ(WholePass(PassOrder(7, 1, false, 2), 3), UpTo(7));
}

TEST(PassOrder, ABlockThatHoldsAllIsAShuffleOfAll) {
  const auto whole = WholePass(PassOrder(50, 1, true), 2);
  EXPECT_EQ(WholePass(PassOrder(50, 1, true, 50), 2), whole);
  EXPECT_EQ(WholePass(PassOrder(50, 1, true, 1000), 2), whole);
}

// 10 blocks of 8 and one of 3, wherever that one comes in a pass.
TEST(PassOrder, BlocksStayTogether) {
  const int64_t size = 83, block = 8;
  std::set<int64_t> places_of_last;
  std::set<std::vector<int64_t>> passes;
  for (int64_t pass = 0; pass < 20; ++pass) {
    const auto order = WholePass(PassOrder(size, 5, true, block), pass);
    passes.insert(order);
    auto sorted = order;
    std::ranges::sort(sorted);
    ASSERT_EQ(sorted, UpTo(size)) << pass;
    std::vector<int64_t> blocks;
    bool shuffled_inside = false;
    for (size_t i = 0; i < order.size(); ++i) {
      const int64_t now = order[i] / block;
      if (blocks.empty() || blocks.back() != now) {
        blocks.push_back(now);
      } else {
        shuffled_inside |= order[i] < order[i - 1];
      }
    }
    EXPECT_TRUE(shuffled_inside) << pass;
    EXPECT_FALSE(std::ranges::is_sorted(blocks)) << pass;
    EXPECT_EQ(blocks.size(), 11u) << pass;  // no block comes in two pieces
    places_of_last.insert(std::ranges::find(blocks, 10) - blocks.begin());
  }
  EXPECT_EQ(passes.size(), 20u);
  EXPECT_GT(places_of_last.size(), 3u);
}

TEST(PassOrder, AnyPlaceCanBeAskedFor) {
  PassOrder backward(83, 5, true, 8);
  for (int64_t pass = 2; pass >= 0; --pass) {
    const auto order = WholePass(PassOrder(83, 5, true, 8), pass);
    for (int64_t i = 82; i >= 0; --i) {
      EXPECT_EQ(backward.At(pass, i), order[static_cast<size_t>(i)])
          << pass << " " << i;
    }
  }
}

TEST(PassOrder, TheSeedChoosesTheOrder) {
  EXPECT_NE(WholePass(PassOrder(83, 5, true, 8), 0),
            WholePass(PassOrder(83, 6, true, 8), 0));
}

// A resumed run depends on the order: it must not change between versions.
TEST(PassOrder, BlocksHaveAFixedOrder) {
  EXPECT_EQ(WholePass(PassOrder(10, 42, true, 4), 0),
            (std::vector<int64_t>{5, 7, 4, 6, 9, 8, 0, 1, 2, 3}));
}

}  // namespace
}  // namespace onnx_fp8
