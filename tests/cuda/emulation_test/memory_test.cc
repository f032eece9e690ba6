// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation_test/child.h"
#include "tests/cuda/emulation_test/device_arrays.h"
#include "tests/cuda/emulation_test/planted_mistakes.h"

namespace onnx_fp8::emulation_test {
namespace {

TEST(DeviceMemory, IsNanWhenFresh) {
  for (float x : Download(OnDevice(100), 100)) EXPECT_TRUE(std::isnan(x));
}

TEST(DeviceMemory, EndsWhereItsLimitIs) {
  size_t limit = emulation::TotalMemory(), free = 0, total = 0;
  Must(cudaMemGetInfo(&free, &total));
  emulation::SetMemoryLimit(total - free + (1 << 20));
  EXPECT_EQ(emulation::FreeMemory(), size_t{1} << 20);
  void *p = nullptr, *q = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 2 << 20), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  Must(cudaMalloc(&p, 1 << 20));
  EXPECT_EQ(cudaMalloc(&q, 1), cudaErrorMemoryAllocation);
  Must(cudaFree(p));
  Must(cudaMemGetInfo(&free, &total));
  EXPECT_EQ(free, size_t{1} << 20);
  emulation::SetMemoryLimit(limit);
  cudaGetLastError();
}

TEST(DeviceMemory, AnEmptyAllocationIsNull) {
  void* p = &p;
  Must(cudaMalloc(&p, 0));
  EXPECT_EQ(p, nullptr);
  Must(cudaFree(nullptr));
}

TEST(DeviceMemory, IsNotFreedTwice) {
  float* p = OnDevice(4);
  Must(cudaFree(p));
  int reports = emulation::Reports();
  EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
  EXPECT_EQ(emulation::Reports(), reports + 1);
  EXPECT_NE(emulation::LastReport().find("freed what is no allocation"),
            std::string::npos);
  EXPECT_EQ(cudaFree(OnDevice(4) + 1), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(DeviceMemory, NoAddressIsUsedTwice) {
  float* p = OnDevice(1024);
  Must(cudaFree(p));
  EXPECT_NE(OnDevice(1024), p);
}

TEST(StreamMemory, LivesInTheOrderOfItsStream) {
  cudaStream_t stream = FreeStream();
  float* host = Pinned(64);
  for (int i = 0; i < 64; ++i) host[i] = static_cast<float>(i);
  size_t free = emulation::FreeMemory();
  void* p = nullptr;
  Must(cudaMallocAsync(&p, 256, stream));
  auto x = static_cast<float*>(p);
  EXPECT_LT(emulation::FreeMemory(), free);
  Must(cudaMemcpyAsync(x, host, 256, cudaMemcpyHostToDevice, stream));
  planted::Add(x, 64, 1.0f, stream);
  Must(cudaMemcpyAsync(host, x, 256, cudaMemcpyDeviceToHost, stream));
  Must(cudaFreeAsync(x, stream));
  Must(cudaStreamSynchronize(stream));
  EXPECT_EQ(host[63], 64.0f);
  EXPECT_EQ(emulation::FreeMemory(), free);
}

TEST(StreamMemory, IsClosedWhenItsStreamFreedIt) {
  std::string text = TextOfChild([] {
    cudaStream_t stream = FreeStream();
    void* p = nullptr;
    Must(cudaMallocAsync(&p, 256, stream));
    Must(cudaFreeAsync(p, stream));
    planted::Add(static_cast<float*>(p), 64, 1.0f, stream);
    Must(cudaStreamSynchronize(stream));
  });
  EXPECT_NE(text.find("(256 bytes, freed)"), text.npos) << text;
}

TEST(StreamMemory, IsNotFilledOrCopiedAfterItsStreamFreedIt) {
  for (bool fill : {true, false}) {
    std::string text = TextOfChild([fill] {
      cudaStream_t stream = FreeStream();
      void *p = nullptr, *q = OnDevice(64);
      Must(cudaMallocAsync(&p, 256, stream));
      Must(cudaFreeAsync(p, stream));
      Must(fill ? cudaMemsetAsync(p, 0, 256, stream)
                : cudaMemcpyAsync(q, p, 256, cudaMemcpyDeviceToDevice, stream));
      Must(cudaStreamSynchronize(stream));
    });
    EXPECT_NE(text.find("(256 bytes, freed)"), text.npos) << text;
    EXPECT_NE(text.find("cudaErrorIllegalAddress"), text.npos) << text;
  }
}

TEST(StreamMemory, IsClosedToStreamsThatDoNotWaitForIt) {
  std::string text = TextOfChild([] {
    cudaStream_t stream = FreeStream();
    void* p = nullptr;
    Must(cudaMallocAsync(&p, 256, stream));
    planted::Add(static_cast<float*>(p), 64, 1.0f, nullptr);
    Must(cudaStreamSynchronize(nullptr));
  });
  EXPECT_NE(text.find("not yet live"), text.npos) << text;
}

TEST(StreamMemory, IsNotForMemoryOfCudaMalloc) {
  EXPECT_EQ(cudaFreeAsync(OnDevice(4), nullptr), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(StreamMemory, WaitsForMemoryThatIsOnItsWay) {
  size_t limit = emulation::TotalMemory();
  emulation::SetMemoryLimit(limit - emulation::FreeMemory() + (1 << 20));
  cudaStream_t stream = FreeStream();
  void *p = nullptr, *q = nullptr;
  Must(cudaMallocAsync(&p, 1 << 20, stream));
  Must(cudaFreeAsync(p, stream));
  Must(cudaMallocAsync(&q, 1 << 20, stream));
  Must(cudaFreeAsync(q, stream));
  Must(cudaStreamSynchronize(stream));
  emulation::SetMemoryLimit(limit);
}

TEST(PinnedMemory, OpensWhenTheCopyIsDone) {
  float *x = Upload(Numbers(3)), *host = Pinned(4);
  cudaStream_t stream = FreeStream();
  host[3] = 7;
  Must(cudaMemcpyAsync(host, x, 12, cudaMemcpyDeviceToHost, stream));
  EXPECT_EQ(host[3], 7);  // beside the copy
  Must(cudaStreamSynchronize(stream));
  EXPECT_EQ(host[2], 2);
  Must(cudaFreeHost(host));
}

TEST(PinnedMemory, MayBeReadWhileACopyReadsIt) {
  float *x = OnDevice(3), *host = Pinned(3);
  host[0] = host[1] = host[2] = 5;
  cudaStream_t stream = FreeStream();
  Must(cudaMemcpyAsync(x, host, 12, cudaMemcpyHostToDevice, stream));
  EXPECT_EQ(host[1], 5);
  Must(cudaStreamSynchronize(stream));
  host[1] = 6;
  EXPECT_EQ(Download(x, 3)[1], 5);
}

TEST(Copies, OfRowsWithPitches) {
  float* x = Upload(Numbers(12));  // 3 rows of 4
  float *y = Upload(std::vector<float>(6, -1.0f)), *host = Pinned(6);
  Must(cudaMemcpy2DAsync(y, 8, x + 1, 16, 8, 3, cudaMemcpyDeviceToDevice,
                         nullptr));
  Must(cudaMemcpyAsync(host, y, 24, cudaMemcpyDeviceToHost, nullptr));
  Must(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(std::vector<float>(host, host + 6),
            (std::vector<float>{1, 2, 5, 6, 9, 10}));
}

TEST(Copies, PastAnEndOrInAWrongDirection) {
  float *x = OnDevice(4), *y = OnDevice(4);
  EXPECT_EQ(cudaMemcpy(x, y, 17, cudaMemcpyDeviceToDevice),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x, y, 16, cudaMemcpyHostToDevice),
            cudaErrorInvalidMemcpyDirection);
  EXPECT_EQ(cudaMemset(x + 1, 0, 16), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2DAsync(x, 4, y, 4, 8, 2, cudaMemcpyDefault, nullptr),
            cudaErrorInvalidPitchValue);
  cudaGetLastError();
}

TEST(OtherThreads, MayCallInTurn) {
  float* x = OnDevice(64);
  Must(cudaMemset(x, 0, 256));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([x] {
      cudaStream_t stream = nullptr;
      Must(cudaStreamCreate(&stream));
      for (int j = 0; j < 5; ++j) {
        planted::Add(x, 64, 1.0f, stream);
        Must(cudaStreamSynchronize(stream));
      }
      Must(cudaStreamDestroy(stream));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(Download(x, 64), std::vector<float>(64, 20.0f));
}

TEST(OtherThreads, CantTouchDeviceMemory) {
  std::string text = TextOfChild([] {
    volatile float* x = OnDevice(4);
    std::thread([x] { x[1] = 0; }).join();
  });
  EXPECT_NE(text.find("the host writes byte 4 of device"), text.npos) << text;
}

TEST(AnEmulatedDevice, IsAHopper) {
  cudaDeviceProp properties;
  Must(cudaGetDeviceProperties(&properties, 0));
  EXPECT_STREQ(properties.name, "Emulated H100");
  EXPECT_EQ(properties.major, 9);
  EXPECT_EQ(properties.sharedMemPerBlockOptin, size_t{227} << 10);
  EXPECT_EQ(properties.totalGlobalMem, emulation::TotalMemory());
  int count = 0, value = 0;
  Must(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 1);
  Must(cudaDeviceGetAttribute(&value, cudaDevAttrMultiProcessorCount, 0));
  EXPECT_EQ(value, properties.multiProcessorCount);
  EXPECT_EQ(cudaSetDevice(1), cudaErrorInvalidDevice);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidDevice);
}

}  // namespace
}  // namespace onnx_fp8::emulation_test
