// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation_test/device_arrays.h"
#include "tests/cuda/emulation_test/planted_mistakes.h"

namespace onnx_fp8::emulation_test {
namespace {

// x += 1 and y += 2 on two streams, then x += 3; as a graph.
cudaGraph_t CaptureAdds(float* x, float* y) {
  cudaStream_t main = FreeStream(), side = FreeStream();
  cudaEvent_t fork = NewEvent(), join = NewEvent();
  Must(cudaStreamBeginCapture(main, cudaStreamCaptureModeGlobal));
  Must(cudaEventRecord(fork, main));
  Must(cudaStreamWaitEvent(side, fork, 0));
  planted::Add(x, 64, 1.0f, main);
  planted::Add(y, 64, 2.0f, side);
  Must(cudaEventRecord(join, side));
  Must(cudaStreamWaitEvent(main, join, 0));
  planted::Add(x, 64, 3.0f, main);
  cudaGraph_t graph = nullptr;
  Must(cudaStreamEndCapture(main, &graph));
  for (cudaStream_t stream : {main, side}) Must(cudaStreamDestroy(stream));
  for (cudaEvent_t event : {fork, join}) Must(cudaEventDestroy(event));
  return graph;
}

TEST(Graphs, RunAsOftenAsTheyAreLaunched) {
  float* x = Upload(std::vector<float>(64, 0.0f));
  float* y = Upload(std::vector<float>(64, 0.0f));
  cudaGraph_t graph = CaptureAdds(x, y);
  EXPECT_EQ(Download(x, 1)[0], 0);  // a capture runs nothing
  cudaGraphExec_t exec = nullptr;
  Must(cudaGraphInstantiate(&exec, graph, 0));
  Must(cudaGraphDestroy(graph));
  cudaStream_t stream = FreeStream();
  Must(cudaGraphUpload(exec, stream));
  for (uint64_t seed = 0; seed < 8; ++seed) {
    emulation::SetSchedule(seed);
    Must(cudaGraphLaunch(exec, stream));
    Must(cudaGraphLaunch(exec, stream));
    Must(cudaStreamSynchronize(stream));
  }
  emulation::SetSchedule(0);
  EXPECT_EQ(Download(x, 64), std::vector<float>(64, 64.0f));
  EXPECT_EQ(Download(y, 64), std::vector<float>(64, 32.0f));
  Must(cudaGraphExecDestroy(exec));
  EXPECT_EQ(cudaGraphLaunch(exec, stream), cudaErrorInvalidValue);
  cudaGetLastError();
}

TEST(Graphs, HaveNodes) {
  float* x = OnDevice(64);
  cudaGraph_t graph = CaptureAdds(x, x);
  size_t count = 0;
  Must(cudaGraphGetNodes(graph, nullptr, &count));
  ASSERT_EQ(count, 3u);
  std::vector<cudaGraphNode_t> nodes(count);
  Must(cudaGraphGetNodes(graph, nodes.data(), &count));
  for (cudaGraphNode_t node : nodes) {
    cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
    Must(cudaGraphNodeGetType(node, &type));
    EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  }
  Must(cudaGraphDestroy(graph));
}

// What a call returns during a capture, and how the capture ends.
struct Outcome {
  cudaError_t call, end;
  bool operator==(const Outcome&) const = default;
};

template <typename F>
Outcome During(cudaStreamCaptureMode mode, F call) {
  cudaStream_t stream = FreeStream();
  Must(cudaStreamBeginCapture(stream, mode));
  Outcome outcome = {call(stream), cudaSuccess};
  cudaGraph_t graph = nullptr;
  outcome.end = cudaStreamEndCapture(stream, &graph);
  if (graph) Must(cudaGraphDestroy(graph));
  Must(cudaStreamDestroy(stream));
  cudaGetLastError();
  return outcome;
}

template <typename F>
Outcome During(F call) {
  return During(cudaStreamCaptureModeGlobal, call);
}

constexpr Outcome kForbidden = {cudaErrorStreamCaptureUnsupported,
                                cudaErrorStreamCaptureInvalidated};
constexpr Outcome kAllowed = {cudaSuccess, cudaSuccess};

TEST(Captures, ForbidWhatWaits) {
  EXPECT_EQ(During([](cudaStream_t s) { return cudaStreamSynchronize(s); }),
            kForbidden);
  EXPECT_EQ(During([](cudaStream_t s) { return cudaStreamQuery(s); }),
            kForbidden);
  EXPECT_EQ(During([](cudaStream_t) { return cudaDeviceSynchronize(); }),
            kForbidden);
  cudaEvent_t event = NewEvent();
  EXPECT_EQ(
      During([event](cudaStream_t s) {
        Must(cudaEventRecord(event, s));
        return cudaEventSynchronize(event);
      }),
      (Outcome{cudaErrorCapturedEvent, cudaErrorStreamCaptureInvalidated}));
}

TEST(Captures, ForbidMemory) {
  void* p = nullptr;
  float *x = OnDevice(4), *host = Pinned(4);
  EXPECT_EQ(During([&](cudaStream_t) { return cudaMalloc(&p, 4); }),
            kForbidden);
  EXPECT_EQ(During([&](cudaStream_t) { return cudaFree(x); }), kForbidden);
  EXPECT_EQ(During([&](cudaStream_t) { return cudaMallocHost(&p, 4); }),
            kForbidden);
  EXPECT_EQ(During([&](cudaStream_t) { return cudaFreeHost(host); }),
            kForbidden);
  EXPECT_EQ(During([&](cudaStream_t s) { return cudaMallocAsync(&p, 4, s); }),
            kForbidden);
  auto relaxed = During(cudaStreamCaptureModeRelaxed,
                        [&](cudaStream_t) { return cudaMalloc(&p, 4); });
  EXPECT_EQ(relaxed, kAllowed);
}

TEST(Captures, ForbidTheDefaultStreamAndOtherGraphs) {
  float* x = OnDevice(4);
  EXPECT_EQ(During([&](cudaStream_t) { return cudaMemset(x, 0, 16); }),
            (Outcome{cudaErrorStreamCaptureImplicit,
                     cudaErrorStreamCaptureInvalidated}));
  cudaGraph_t graph = CaptureAdds(x, x);
  cudaGraphExec_t exec = nullptr;
  Must(cudaGraphInstantiate(&exec, graph, 0));
  EXPECT_EQ(During([&](cudaStream_t s) { return cudaGraphLaunch(exec, s); }),
            kForbidden);
  Must(cudaGraphExecDestroy(exec));
  Must(cudaGraphDestroy(graph));
}

TEST(Captures, ForbidEventsFromOutside) {
  cudaEvent_t event = NewEvent();
  Must(cudaEventRecord(event, nullptr));
  EXPECT_EQ(
      During([&](cudaStream_t s) { return cudaStreamWaitEvent(s, event, 0); }),
      (Outcome{cudaErrorStreamCaptureIsolation,
               cudaErrorStreamCaptureInvalidated}));
}

TEST(Captures, EndTheirEvents) {
  cudaEvent_t event = NewEvent();
  EXPECT_EQ(During([&](cudaStream_t s) { return cudaEventRecord(event, s); }),
            kAllowed);
  EXPECT_EQ(cudaStreamWaitEvent(FreeStream(), event, 0),
            cudaErrorCapturedEvent);
  cudaGetLastError();
}

TEST(Captures, HaveAStatus) {
  cudaStream_t stream = FreeStream();
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  Must(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusNone);
  Must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  Must(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusActive);
  EXPECT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal),
            cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorStreamCaptureUnsupported);
  Must(cudaStreamIsCapturing(stream, &status));
  EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated);
  cudaGraph_t graph = nullptr;
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph),
            cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(cudaStreamEndCapture(stream, &graph), cudaErrorIllegalState);
  cudaGetLastError();
}

}  // namespace
}  // namespace onnx_fp8::emulation_test
