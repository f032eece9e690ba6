// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/side_stream.h"

#include "providers/cuda/core/check.h"

namespace onnx_fp8::cuda {

SideStream::~SideStream() {
  Drop();
  cudaStreamSynchronize(side_.stream());
  for (cudaEvent_t event : free_) cudaEventDestroy(event);
}

cudaEvent_t SideStream::NewEvent() {
  cudaEvent_t event = nullptr;
  if (free_.empty()) {
    ONNX_FP8_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  } else {
    event = free_.back();
    free_.pop_back();
  }
  return event;
}

// A wait is for what the event recorded last before it, so the event is free
// again.
void SideStream::Start(std::function<void()> work) {
  cudaEvent_t event = NewEvent();
  started_.push_back(event);
  ONNX_FP8_CUDA(cudaEventRecord(event, main_.stream()));
  ONNX_FP8_CUDA(cudaStreamWaitEvent(side_.stream(), event, 0));
  work();
  ONNX_FP8_CUDA(cudaEventRecord(event, side_.stream()));
}

void SideStream::Await() {
  ONNX_FP8_CUDA(cudaStreamWaitEvent(main_.stream(), started_.front(), 0));
  free_.push_back(started_.front());
  started_.pop_front();
}

// Memory of these works may be freed in the main stream. A work that has failed
// may have launched a part, behind which no event is recorded. (In a capture
// that has failed there is nothing to wait for.)
void SideStream::Drop() {
  if (started_.empty()) return;
  cudaEventRecord(started_.back(), side_.stream());
  cudaStreamWaitEvent(main_.stream(), started_.back(), 0);
  cudaGetLastError();
  free_.insert(free_.end(), started_.begin(), started_.end());
  started_.clear();
}

}  // namespace onnx_fp8::cuda
