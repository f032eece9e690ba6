// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/gemm/tune.h"

#include <algorithm>
#include <limits>

#include "providers/cuda/core/check.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int kTimedRuns = 4;
// A way must beat the time of an earlier one by this factor: times of a few
// microseconds measure the host, which starts the work, and are all alike.
constexpr float kClearly = 0.97f;
constexpr float kNever = std::numeric_limits<float>::infinity();

// Points in time of a stream.
class Events {
 public:
  Events() {
    for (cudaEvent_t& event : events_) ONNX_FP8_CUDA(cudaEventCreate(&event));
  }
  ~Events() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  void Record(int i, cudaStream_t stream) {
    ONNX_FP8_CUDA(cudaEventRecord(events_[i], stream));
  }

  // The shortest time from one event to the next.
  float Shortest() const {
    ONNX_FP8_CUDA(cudaEventSynchronize(events_[kTimedRuns]));
    float shortest = kNever;
    for (int i = 0; i < kTimedRuns; ++i) {
      float milliseconds = 0;
      ONNX_FP8_CUDA(
          cudaEventElapsedTime(&milliseconds, events_[i], events_[i + 1]));
      shortest = std::min(shortest, milliseconds);
    }
    return shortest;
  }

 private:
  cudaEvent_t events_[kTimedRuns + 1] = {};
};

// Milliseconds of one run; kNever: it can't run. A run before the first event
// loads the kernel.
float TimeOf(const std::function<bool()>& start, Events& events,
             cudaStream_t stream) {
  for (int i = 0; i <= kTimedRuns; ++i) {
    if (!start()) {
      cudaGetLastError();  // so that nobody else reports it
      return kNever;
    }
    events.Record(i, stream);
  }
  return events.Shortest();
}

}  // namespace

bool IsCapturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  ONNX_FP8_CUDA(cudaStreamIsCapturing(stream, &status));
  return status != cudaStreamCaptureStatusNone;
}

std::optional<size_t> FastestOf(size_t ways,
                                const std::function<bool(size_t)>& start,
                                cudaStream_t stream) {
  Events events;
  std::optional<size_t> fastest;
  float shortest = kNever;
  for (size_t i = 0; i < ways; ++i) {
    float time = TimeOf([&] { return start(i); }, events, stream);
    if (time >= kClearly * shortest) continue;
    shortest = time;
    fastest = i;
  }
  return fastest;
}

}  // namespace onnx_fp8::cuda
