// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/order.h"

#include <gtest/gtest.h>

#include <numeric>

#include "base/random.h"

namespace onnx_fp8 {
namespace {

using Edges = std::vector<std::pair<int, int>>;
using Order = std::vector<int>;

Order Given(int n) {
  Order order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

TEST(OrderSteps, KeepsTheGivenOrderWhereItCan) {
  std::vector<InPlaceWrite> none;
  EXPECT_EQ(OrderSteps(Given(4), {{0, 3}, {1, 2}}, none), (Order{0, 1, 2, 3}));
  EXPECT_EQ(OrderSteps(Given(4), {{3, 0}, {2, 1}}, none), (Order{2, 1, 3, 0}));
  EXPECT_EQ(OrderSteps(Given(0), {}, none), Order{});
  EXPECT_EQ(OrderSteps({2, 0, 3, 1}, {{1, 0}}, none), (Order{2, 3, 1, 0}));
}

TEST(OrderSteps, PutsReadersBeforeTheWriter) {
  std::vector<InPlaceWrite> writes = {{0, {2, 3}, 8}};
  EXPECT_EQ(OrderSteps(Given(4), {{1, 3}}, writes), (Order{1, 2, 3, 0}));
  EXPECT_TRUE(writes[0].granted);
}

TEST(OrderSteps, RefusesAWriteWhoseReaderNeedsIt) {
  std::vector<InPlaceWrite> writes = {{0, {2}, 8}, {1, {2}, 8}};
  EXPECT_EQ(OrderSteps(Given(3), {{0, 2}}, writes), (Order{0, 2, 1}));
  EXPECT_FALSE(writes[0].granted);
  EXPECT_TRUE(writes[1].granted);
}

TEST(OrderSteps, RefusesTheCheapestWriteOfACycle) {
  // 0 and 1 write. 2 reads memory that 0 overwrites, and needs 1; 3 is the
  // other way round. 4 only waits for the cycle.
  for (size_t bytes : {4, 16}) {
    std::vector<InPlaceWrite> writes = {
        {4, {3}, 1}, {0, {2}, 8}, {1, {3}, bytes}};
    OrderSteps(Given(5), {{1, 2}, {0, 3}}, writes);
    EXPECT_TRUE(writes[0].granted);
    EXPECT_EQ(writes[1].granted, bytes == 4);
    EXPECT_EQ(writes[2].granted, bytes == 16);
  }
}

TEST(OrderSteps, EndsAtACycleOfEdges) {
  std::vector<InPlaceWrite> writes = {{1, {0}, 8}};
  EXPECT_EQ(OrderSteps(Given(4), {{1, 2}, {2, 1}, {2, 3}}, writes), (Order{0}));
}

TEST(OrderSteps, RandomGraphs) {
  size_t refused = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    uint64_t count = 0;
    auto below = [&](int n) {
      return static_cast<int>(
          RandomBelow(seed, count++, static_cast<uint64_t>(n)));
    };
    int n = 2 + below(30);
    Edges edges;
    for (int i = 0; i < n; ++i) {
      int from = below(n - 1);
      edges.emplace_back(from, from + 1 + below(n - from - 1));
    }
    std::vector<InPlaceWrite> writes;
    for (int i = below(8); i > 0; --i) {
      InPlaceWrite write{below(n), {}, RandomBelow(seed, count++, 5)};
      for (int k = below(4); k > 0; --k) {
        int reader = below(n);
        if (reader != write.writer) write.readers.push_back(reader);
      }
      writes.push_back(write);
    }
    Order order = OrderSteps(Given(n), edges, writes);
    std::vector<int> at(static_cast<size_t>(n), -1);
    ASSERT_EQ(order.size(), static_cast<size_t>(n)) << seed;
    for (size_t i = 0; i < order.size(); ++i) {
      at[static_cast<size_t>(order[i])] = static_cast<int>(i);
    }
    auto before = [&](int a, int b) {
      return at[static_cast<size_t>(a)] < at[static_cast<size_t>(b)];
    };
    for (auto [from, to] : edges) ASSERT_TRUE(before(from, to)) << seed;
    for (const InPlaceWrite& write : writes) {
      refused += !write.granted;
      for (int reader : write.readers) {
        ASSERT_TRUE(!write.granted || before(reader, write.writer)) << seed;
      }
    }
  }
  EXPECT_GT(refused, 100u);
}

}  // namespace
}  // namespace onnx_fp8
