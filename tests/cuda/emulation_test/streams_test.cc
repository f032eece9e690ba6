// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation_test/child.h"
#include "tests/cuda/emulation_test/device_arrays.h"
#include "tests/cuda/emulation_test/planted_mistakes.h"

namespace onnx_fp8::emulation_test {
namespace {

// Appends a number to a list, in the order in which streams run.
struct Note {
  std::vector<int>* list;
  int number;
};

void CUDART_CB Append(void* data) {
  auto note = static_cast<Note*>(data);
  note->list->push_back(note->number);
}

std::vector<int> OrderOfStreams(uint64_t schedule, bool with_event) {
  emulation::SetSchedule(schedule);
  std::vector<int> order;
  Note notes[] = {{&order, 0}, {&order, 1}, {&order, 2}, {&order, 3}};
  cudaStream_t a = FreeStream(), b = FreeStream();
  cudaEvent_t event = NewEvent();
  Must(cudaLaunchHostFunc(a, Append, &notes[0]));
  Must(cudaLaunchHostFunc(a, Append, &notes[1]));
  Must(cudaEventRecord(event, a));
  if (with_event) Must(cudaStreamWaitEvent(b, event, 0));
  Must(cudaLaunchHostFunc(b, Append, &notes[2]));
  Must(cudaLaunchHostFunc(b, Append, &notes[3]));
  EXPECT_TRUE(order.empty());  // nothing runs before it is waited for
  Must(cudaDeviceSynchronize());
  Must(cudaStreamDestroy(a));
  Must(cudaStreamDestroy(b));
  Must(cudaEventDestroy(event));
  emulation::SetSchedule(0);
  return order;
}

TEST(Streams, RunInDrawnOrders) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 16; ++seed) {
    orders.insert(OrderOfStreams(seed, false));
  }
  EXPECT_GE(orders.size(), 4u);
  for (const std::vector<int>& order : orders) {
    EXPECT_EQ(order.size(), 4u);
    auto at = [&](int n) { return std::ranges::find(order, n); };
    EXPECT_LT(at(0), at(1));
    EXPECT_LT(at(2), at(3));
  }
}

TEST(Streams, AnEventOrdersThem) {
  for (uint64_t seed = 0; seed < 16; ++seed) {
    EXPECT_EQ(OrderOfStreams(seed, true), (std::vector<int>{0, 1, 2, 3}));
  }
}

TEST(Streams, RunInExtremeOrders) {
  const std::vector<int> first = {0, 1, 2, 3}, last = {2, 3, 0, 1};
  EXPECT_EQ(OrderOfStreams(emulation::kFirstStreamFirst, false), first);
  EXPECT_EQ(OrderOfStreams(emulation::kLastStreamFirst, false), last);
  EXPECT_EQ(OrderOfStreams(emulation::kFirstStreamFirst, true), first);
  EXPECT_EQ(OrderOfStreams(emulation::kLastStreamFirst, true), first);
}

TEST(Streams, TheDefaultStreamWaitsForBlockingOnes) {
  for (uint64_t seed = 0; seed < 8; ++seed) {
    emulation::SetSchedule(seed);
    std::vector<int> order;
    Note notes[] = {{&order, 0}, {&order, 1}, {&order, 2}};
    cudaStream_t stream = nullptr;
    Must(cudaStreamCreate(&stream));
    Must(cudaLaunchHostFunc(stream, Append, &notes[0]));
    Must(cudaLaunchHostFunc(nullptr, Append, &notes[1]));
    Must(cudaLaunchHostFunc(stream, Append, &notes[2]));
    Must(cudaStreamSynchronize(stream));
    EXPECT_EQ(order, (std::vector<int>{0, 1, 2}));
    Must(cudaStreamDestroy(stream));
  }
  emulation::SetSchedule(0);
}

TEST(Streams, AQueryEndsIfItIsRepeated) {
  float* x = OnDevice(64);
  cudaStream_t stream = FreeStream();
  Must(cudaMemsetAsync(x, 0, 256, stream));
  planted::Add(x, 64, 1.0f, stream);
  EXPECT_EQ(cudaStreamQuery(stream), cudaErrorNotReady);
  int queries = 1;
  while (cudaStreamQuery(stream) == cudaErrorNotReady) ++queries;
  EXPECT_LE(queries, 4);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  EXPECT_EQ(Download(x, 64), std::vector<float>(64, 1.0f));
}

TEST(Streams, HandlesAreChecked) {
  cudaStream_t stream = FreeStream();
  Must(cudaStreamDestroy(stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  cudaEvent_t event = NewEvent();
  Must(cudaEventDestroy(event));
  EXPECT_EQ(cudaEventRecord(event, nullptr), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
}

TEST(Streams, HavePriorities) {
  int least = 1, greatest = 1, priority = 1;
  Must(cudaDeviceGetStreamPriorityRange(&least, &greatest));
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest));
  Must(cudaStreamGetPriority(stream, &priority));
  EXPECT_LT(greatest, least);
  EXPECT_EQ(priority, greatest);
  Must(cudaStreamDestroy(stream));
}

TEST(Events, TimePassesBetweenThem) {
  float* x = OnDevice(64);
  cudaStream_t stream = FreeStream();
  cudaEvent_t begin = NewEvent(), end = NewEvent();
  Must(cudaEventRecord(begin, stream));
  Must(cudaMemsetAsync(x, 0, 256, stream));
  Must(cudaEventRecord(end, stream));
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  Must(cudaEventSynchronize(end));
  Must(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GT(milliseconds, 0);
}

TEST(Events, OnesWithoutTimeHaveNone) {
  cudaEvent_t event = nullptr;
  Must(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  Must(cudaEventRecord(event, nullptr));
  Must(cudaEventSynchronize(event));
  EXPECT_EQ(cudaEventQuery(event), cudaSuccess);
  float milliseconds = 0;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, event, event),
            cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  Must(cudaEventDestroy(event));
}

TEST(HostFunctions, MayNotCallTheRuntime) {
  cudaError_t error = cudaSuccess;
  auto call = [](void* data) {
    *static_cast<cudaError_t*>(data) = cudaDeviceSynchronize();
  };
  Must(cudaLaunchHostFunc(nullptr, call, &error));
  int reports = emulation::Reports();
  Must(cudaDeviceSynchronize());
  EXPECT_EQ(error, cudaErrorNotPermitted);
  EXPECT_EQ(emulation::Reports(), reports + 1);
  cudaGetLastError();
}

TEST(HostFunctions, CantTouchDeviceMemory) {
  std::string text = TextOfChild([] {
    auto read = [](void* x) { *static_cast<volatile float*>(x); };
    Must(cudaLaunchHostFunc(nullptr, read, OnDevice(1)));
    Must(cudaDeviceSynchronize());
  });
  EXPECT_NE(text.find("the host reads byte 0 of device"), text.npos) << text;
}

}  // namespace
}  // namespace onnx_fp8::emulation_test
