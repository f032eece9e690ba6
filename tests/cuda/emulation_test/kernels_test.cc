// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation_test/child.h"
#include "tests/cuda/emulation_test/device_arrays.h"
#include "tests/cuda/emulation_test/device_kernels.h"

namespace onnx_fp8::emulation_test {
namespace {

template <typename T>
T* Filled(size_t n, T value = {}) {
  return Upload(std::vector<T>(n, value));
}

std::vector<unsigned> OrderUnder(uint64_t schedule) {
  emulation::SetSchedule(schedule);
  auto *counter = Filled<unsigned>(1), *ids = OnDevice<unsigned>(4 * 64);
  OrderOfThreads(4, 64, counter, ids);
  std::vector<unsigned> order = Download(ids, 4 * 64);
  emulation::SetSchedule(0);
  return order;
}

TEST(KernelSchedule, ZeroIsTheNaturalOrder) {
  std::vector<unsigned> order = OrderUnder(0);
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

TEST(KernelSchedule, OthersDrawOrders) {
  std::set<std::vector<unsigned>> orders;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    std::vector<unsigned> order = OrderUnder(seed);
    orders.insert(order);
    std::ranges::sort(order);
    for (unsigned i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
  }
  EXPECT_EQ(orders.size(), 8u);
}

TEST(KernelSchedule, ASeedGivesTheSameOrder) {
  EXPECT_EQ(OrderUnder(5), OrderUnder(5));
}

TEST(DeviceLanguage, CollectivesOfAWarp) {
  int* device = OnDevice<int>(32 * kCollectives);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    emulation::SetSchedule(seed);
    Collectives(device);
    std::vector<int> results = Download(device, 32 * kCollectives);
    for (int lane = 0; lane < 32; ++lane) {
      auto begin = results.begin() + lane * kCollectives;
      std::vector<int> got(begin, begin + kCollectives);
      std::vector<int> want = {
          5,
          lane / 8 * 8 + 3,
          lane ^ 1,
          lane < 2 ? lane : lane - 2,
          lane > 29 ? lane : lane + 2,
          lane % 4 > 1 ? lane : lane + 2,
          static_cast<int>(0xAAAAAAAA),
          1,
          0,
          31 * 32 / 2,
          7,
          31,
          -20,
          -9,
          31,
          3,
      };
      EXPECT_EQ(got, want) << "lane " << lane;
    }
  }
  emulation::SetSchedule(0);
}

TEST(DeviceLanguage, HalvesOfAWarpMeetApart) {
  int* results = OnDevice<int>(32);
  for (uint64_t seed = 0; seed < 16; ++seed) {
    emulation::SetSchedule(seed);
    HalvesOfAWarp(results);
    std::vector<int> want(32, 120);
    std::fill(want.begin() + 16, want.end(), 376);
    EXPECT_EQ(Download(results, 32), want);
  }
  emulation::SetSchedule(0);
}

TEST(DeviceLanguage, BarriersWithVotes) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    emulation::SetSchedule(seed);
    int* results = OnDevice<int>(96);
    Votes(96, results);
    EXPECT_EQ(Download(results, 96), std::vector<int>(96, 32110));
  }
  emulation::SetSchedule(0);
}

TEST(DeviceLanguage, AtomicsOfIntegers) {
  int* cells = Upload<int>({0, 0, 0, 0, 0xFFF, 0, 0, 0, 0});
  Atomics(64, cells);
  EXPECT_EQ(
      Download(cells, kAtomics),
      (std::vector<int>{63 * 64 / 2, 63, -63, 0xFF, 0xF00, -64, 77, 5, 0}));
}

TEST(DeviceLanguage, ExactNumbersAreThoseOfTheHost) {
  float* results = OnDevice(kExact);
  emulation::SetNumerics(7);
  ExactNumbers(results);
  emulation::SetNumerics(0);
  std::vector<float> want = {
      std::nextafter(1.5f, 2.0f),
      -2.0f,
      1024.0f,
      8,
      31,
      4,
      -4,
      4,
      2,
      7,
      1.0f / 3.0f,
      std::sqrt(2.0f),
      1.0f / 7.0f,
      std::fma(1.0f + 0x1p-12f, 1.0f + 0x1p-12f, -1.0f),
      7,
      11,
      3,
      1,
      std::sqrt(2.0f),
      7,
  };
  EXPECT_EQ(Download(results, kExact), want);
}

std::vector<float> InexactUnder(uint64_t numerics, float x) {
  emulation::SetNumerics(numerics);
  float* results = OnDevice(kInexact);
  InexactNumbers(x, results);
  std::vector<float> values = Download(results, kInexact);
  emulation::SetNumerics(0);
  return values;
}

TEST(DeviceLanguage, InexactNumbersAreAFewUnitsOff) {
  for (float x : {0.7f, 1.9f, 3.3f}) {
    std::vector<float> exact = InexactUnder(0, x);
    EXPECT_EQ(exact[0], static_cast<float>(std::exp(double{x})));
    int off = 0;
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      std::vector<float> values = InexactUnder(seed, x);
      EXPECT_EQ(values, InexactUnder(seed, x));
      for (int i = 0; i < kInexact; ++i) {
        EXPECT_NEAR(values[i], exact[i], std::fabs(exact[i]) * 0x1p-20f);
        if (values[i] != exact[i]) ++off;
      }
    }
    EXPECT_GT(off, 8 * kInexact / 4);
  }
}

TEST(DynamicShared, IsTheBlocksOwn) {
  int* results = OnDevice<int>(128);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    emulation::SetSchedule(seed);
    NeighborsInShared(128, results);
    std::vector<int> want(128);
    for (int i = 0; i < 128; ++i) want[i] = (i + 1) % 128 * 3;
    EXPECT_EQ(Download(results, 128), want);
  }
  emulation::SetSchedule(0);
}

TEST(DynamicShared, MoreThan48KibMustBeGranted) {
  std::string text =
      TextOfChild([] { MuchShared(220 << 10, false, OnDevice(1)); });
  EXPECT_NE(text.find("can't be launched"), text.npos) << text;
  EXPECT_NE(text.find("cudaErrorInvalidValue"), text.npos) << text;
  text = TextOfChild([] { MuchShared(228 << 10, true, OnDevice(1)); });
  EXPECT_NE(text.find("dynamic shared memory"), text.npos) << text;
  float* x = OnDevice(1);
  MuchShared(200 << 10, true, x);
  EXPECT_EQ(Download(x, 1)[0], 3.0f);
}

TEST(DynamicShared, StaticMemoryIsKnown) {
  EXPECT_EQ(AttributesOfMuchShared().sharedSizeBytes, 1024u);
  MuchShared(100 << 10, true, OnDevice(1));
  Must(cudaDeviceSynchronize());
  EXPECT_EQ(AttributesOfMuchShared().maxDynamicSharedSizeBytes, 100 << 10);
  EXPECT_EQ(OccupancyOfMuchShared(256, 100 << 10), 2);
  EXPECT_EQ(OccupancyOfMuchShared(1024, 0), 2);
  EXPECT_EQ(OccupancyOfMuchShared(32, 0), 32);
}

TEST(KernelFaults, ABarrierOfAWarpIsNotOneOfTheBlock) {
  if (!emulation::Checked()) return;
  std::string text = TextOfChild([] {
    WarpBarrierOnly(OnDevice(64));
    Must(cudaDeviceSynchronize());
  });
  EXPECT_NE(text.find("shared memory"), text.npos) << text;
  EXPECT_NE(text.find("device_kernels.cu:"), text.npos) << text;
}

TEST(KernelFaults, AStackOverflows) {
  std::string text = TextOfChild([] {
    Recurse(1 << 20, Filled<int>(1));
    Must(cudaDeviceSynchronize());
  });
  EXPECT_NE(text.find("its stack overflows"), text.npos) << text;
  EXPECT_NE(text.find("cudaErrorIllegalAddress"), text.npos) << text;
}

TEST(KernelFaults, ATrapIsALaunchFailure) {
  std::string text = TextOfChild([] {
    Trap();
    Must(cudaDeviceSynchronize());
  });
  EXPECT_NE(text.find("of TrapKernel traps"), text.npos) << text;
  EXPECT_NE(text.find("cudaErrorLaunchFailure"), text.npos) << text;
}

TEST(Counts, CallsByName) {
  float *x = OnDevice(8), *y = OnDevice(8);
  emulation::ResetCounts();
  Must(cudaMemset(x, 0, 32));
  CopyFloats(x, 8, y);
  CopyFloats(x, 8, y);
  EXPECT_EQ(emulation::Calls("cudaLaunchKernel"), 2);
  EXPECT_EQ(emulation::Calls("cudaMemset"), 1);
  EXPECT_EQ(emulation::Calls("cudaDeviceSynchronize"), 0);
  Must(cudaDeviceSynchronize());
  EXPECT_EQ(emulation::Calls("cudaDeviceSynchronize"), 1);
  emulation::ResetCounts();
  EXPECT_EQ(emulation::Calls("cudaDeviceSynchronize"), 0);
}

TEST(Counts, TrafficByKernel) {
  float *x = Upload(Numbers(100)), *y = OnDevice(100);
  emulation::ResetCounts();
  CopyFloats(x, 100, y);
  EXPECT_TRUE(emulation::Traffic().empty());  // nothing ran yet
  Must(cudaDeviceSynchronize());
  auto traffic = emulation::Traffic();
  ASSERT_EQ(traffic.size(), 1u);
  EXPECT_EQ(traffic.begin()->first, "CopyKernel<float>");
  const emulation::KernelTraffic& copy = traffic.begin()->second;
  EXPECT_EQ(copy.launches, 1);
  EXPECT_EQ(copy.bytes_read, emulation::Checked() ? 400 : 0);
  EXPECT_EQ(copy.bytes_written, emulation::Checked() ? 400 : 0);
  EXPECT_EQ(Download(y, 100), Numbers(100));
}

TEST(Counts, BarriersAndShufflesOfManyThreads) {
  float* x = OnDevice(256);
  Loop(200, x);
  EXPECT_EQ(Download(x, 256), Numbers(256));
}

}  // namespace
}  // namespace onnx_fp8::emulation_test
