// SPDX-License-Identifier: Apache-2.0
#include "tests/support/collective_cases.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace onnx_fp8 {
namespace {

constexpr size_t kCounts[] = {0, 1, 2, 7, 1000};

// Sums of these depend on the order of the ranks.
template <typename T>
std::vector<T> DataOf(int rank, size_t count) {
  std::vector<T> data(count);
  for (size_t i = 0; i < count; ++i) {
    const double x = std::sin(static_cast<double>(i) * 12.9898 + rank * 78.233);
    data[i] = static_cast<T>(x * (rank % 2 ? 1e8 : 1));
  }
  return data;
}

template <typename T>
bool SameBits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() &&
         (a.empty() ||
          std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

template <typename T>
std::vector<T> Reduced(const Communicator& ranks, bool sum, size_t count) {
  std::vector<T> result = DataOf<T>(0, count);
  for (int r = 1; r < ranks.size(); ++r) {
    const std::vector<T> data = DataOf<T>(r, count);
    for (size_t i = 0; i < count; ++i) {
      result[i] = sum ? static_cast<T>(result[i] + data[i])
                      : std::max(result[i], data[i]);
    }
  }
  return result;
}

template <typename T>
void ExpectAllReduceOf(Communicator& ranks) {
  for (size_t count : kCounts) {
    for (Reduction reduction : {Reduction::kSum, Reduction::kMax}) {
      const std::vector<T> x = DataOf<T>(ranks.rank(), count);
      const std::vector<T> expected =
          Reduced<T>(ranks, reduction == Reduction::kSum, count);
      std::vector<T> y(count), in_place = x;
      ranks.AllReduce(reduction, DTypeOf<T>(), x.data(), y.data(), count);
      EXPECT_TRUE(SameBits(y, expected)) << Name(DTypeOf<T>()) << " " << count;
      ranks.AllReduce(reduction, DTypeOf<T>(), in_place.data(), in_place.data(),
                      count);
      EXPECT_TRUE(SameBits(in_place, expected)) << "in place, " << count;
    }
  }
  // All of them in one call.
  std::vector<std::vector<T>> x, y;
  for (size_t count : kCounts) {
    x.push_back(DataOf<T>(ranks.rank(), count));
    y.emplace_back(count);
  }
  std::vector<Transfer> tensors;
  for (size_t i = 0; i < x.size(); ++i) {
    tensors.push_back({x[i].data(), y[i].data(), x[i].size()});
  }
  ranks.AllReduce(Reduction::kSum, DTypeOf<T>(), tensors);
  for (const std::vector<T>& sum : y) {
    EXPECT_TRUE(SameBits(sum, Reduced<T>(ranks, true, sum.size())))
        << "together, " << sum.size();
  }
}

// Rank r's block of the sum of count · ranks elements.
template <typename T>
std::vector<T> BlockOfSum(const Communicator& ranks, size_t count) {
  const std::vector<T> sum =
      Reduced<T>(ranks, true, count * static_cast<size_t>(ranks.size()));
  const auto begin = sum.begin() + static_cast<ptrdiff_t>(count) * ranks.rank();
  return {begin, begin + static_cast<ptrdiff_t>(count)};
}

template <typename T>
void ExpectReduceScatterOf(Communicator& ranks) {
  const size_t size = static_cast<size_t>(ranks.size());
  for (size_t count : kCounts) {
    const std::vector<T> x = DataOf<T>(ranks.rank(), count * size);
    std::vector<T> y(count);
    ranks.ReduceScatter(DTypeOf<T>(), x.data(), y.data(), count);
    EXPECT_TRUE(SameBits(y, BlockOfSum<T>(ranks, count)))
        << Name(DTypeOf<T>()) << " " << count;
  }
  std::vector<std::vector<T>> x, y;
  for (size_t count : kCounts) {
    x.push_back(DataOf<T>(ranks.rank(), count * size));
    y.emplace_back(count);
  }
  std::vector<Transfer> tensors;
  for (size_t i = 0; i < x.size(); ++i) {
    tensors.push_back({x[i].data(), y[i].data(), y[i].size()});
  }
  ranks.ReduceScatter(DTypeOf<T>(), tensors);
  for (const std::vector<T>& block : y) {
    EXPECT_TRUE(SameBits(block, BlockOfSum<T>(ranks, block.size())))
        << "together, " << block.size();
  }
}

}  // namespace

void ExpectAllReduce(Communicator& ranks) {
  ExpectAllReduceOf<float>(ranks);
  ExpectAllReduceOf<double>(ranks);
  ExpectAllReduceOf<int32_t>(ranks);
  ExpectAllReduceOf<int64_t>(ranks);
  // An amax that is not finite reaches all ranks, and so does NaN.
  const bool last = ranks.rank() == ranks.size() - 1;
  const float x[] = {last ? INFINITY : 1.0f, last ? NAN : 1.0f,
                     last ? 1.0f : NAN};
  float y[3];
  ranks.AllReduce(Reduction::kMax, DType::kFloat, x, y, 3);
  EXPECT_EQ(y[0], INFINITY);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_EQ(std::isnan(y[2]), ranks.size() > 1);
  // Integers wrap around.
  const int64_t large = std::numeric_limits<int64_t>::max();
  int64_t sum = 0;
  ranks.AllReduce(Reduction::kSum, DType::kInt64, &large, &sum, 1);
  EXPECT_EQ(static_cast<uint64_t>(sum),
            static_cast<uint64_t>(large) * static_cast<uint64_t>(ranks.size()));
}

// FP8 travels as bytes, and so do all bit patterns.
void ExpectAllGather(Communicator& ranks) {
  const auto data = [](int rank, size_t bytes) {
    std::vector<uint8_t> x(bytes);
    for (size_t i = 0; i < bytes; ++i) {
      x[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(rank) * 101);
    }
    return x;
  };
  std::vector<std::vector<uint8_t>> expected_of_all;
  for (size_t bytes : kCounts) {
    std::vector<uint8_t> expected;
    for (int r = 0; r < ranks.size(); ++r) {
      const std::vector<uint8_t> part = data(r, bytes);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    const std::vector<uint8_t> x = data(ranks.rank(), bytes);
    std::vector<uint8_t> y(expected.size());
    ranks.AllGather(x.data(), y.data(), bytes);
    EXPECT_EQ(y, expected);
    expected_of_all.push_back(std::move(expected));
  }
  // All of them in one call.
  std::vector<std::vector<uint8_t>> x, y;
  std::vector<Transfer> tensors;
  for (size_t bytes : kCounts) {
    x.push_back(data(ranks.rank(), bytes));
    y.emplace_back(bytes * static_cast<size_t>(ranks.size()));
    tensors.push_back({x.back().data(), y.back().data(), bytes});
  }
  ranks.AllGather(tensors);
  EXPECT_EQ(y, expected_of_all);
}

void ExpectReduceScatter(Communicator& ranks) {
  ExpectReduceScatterOf<float>(ranks);
  ExpectReduceScatterOf<double>(ranks);
  ExpectReduceScatterOf<int32_t>(ranks);
  ExpectReduceScatterOf<int64_t>(ranks);
}

void ExpectBroadcast(Communicator& ranks) {
  for (int root = 0; root < ranks.size(); ++root) {
    for (size_t count : kCounts) {
      std::vector<float> data = DataOf<float>(ranks.rank(), count);
      ranks.Broadcast(data.data(), count * sizeof(float), root);
      EXPECT_TRUE(SameBits(data, DataOf<float>(root, count))) << count;
    }
    ranks.Barrier();
  }
}

void ExpectWireBytes(Communicator& ranks) {
  const WireBytes before = ranks.wire_bytes();
  const int64_t others = ranks.size() - 1;
  const size_t size = static_cast<size_t>(ranks.size());
  std::vector<float> x(100 * size + 1), y(100 * size * size);
  // The last element takes a block of its own on every rank.
  ranks.AllReduce(Reduction::kSum, DType::kFloat, x.data(), y.data(),
                  100 * size + 1);
  ranks.AllGather(x.data(), y.data(), 20);
  ranks.ReduceScatter(DType::kFloat, x.data(), y.data(), 30);
  ranks.Broadcast(x.data(), 36, 0);
  const WireBytes& after = ranks.wire_bytes();
  EXPECT_EQ(after.all_reduce - before.all_reduce, 2 * others * 101 * 4);
  EXPECT_EQ(after.all_gather - before.all_gather, others * 20);
  EXPECT_EQ(after.reduce_scatter - before.reduce_scatter, others * 30 * 4);
  EXPECT_EQ(after.broadcast - before.broadcast, ranks.rank() == 0 ? 0 : 36);
}

}  // namespace onnx_fp8
