// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/queue.h"

#include "base/check.h"
#include "providers/cuda/core/check.h"

namespace onnx_fp8::cuda {

// Smaller numbers come first, and 0 comes last.
Queue::Queue(const ProviderOptions& options, Priority priority)
    : options_(options) {
  ONNX_FP8_CUDA(cudaStreamCreateWithPriority(
      &stream_, cudaStreamNonBlocking, priority == Priority::kLow ? 0 : -1));
  staging_ = std::make_unique<Staging>(stream_);
  ONNX_FP8_CUDA(
      cudaMalloc(reinterpret_cast<void**>(&complaint_), sizeof(Complaint)));
  ONNX_FP8_CUDA(
      cudaMallocHost(reinterpret_cast<void**>(&seen_), sizeof(Complaint)));
  ONNX_FP8_CUDA(cudaMemsetAsync(complaint_, 0, sizeof(Complaint), stream_));
}

// After an error of the device these calls fail, too; nothing is left to save.
Queue::~Queue() {
  cudaStreamSynchronize(stream_);
  owned_.clear();
  staging_.reset();
  cudaFree(complaint_);
  cudaFreeHost(seen_);
  cudaStreamDestroy(stream_);
}

uint32_t Queue::MessageNumber(const std::string& message) {
  auto [known, added] = numbers_.emplace(message, messages_.size() + 1);
  if (added) messages_.push_back(message);
  return known->second;
}

void Queue::Synchronize() {
  ONNX_FP8_CUDA(cudaMemcpyAsync(seen_, complaint_, sizeof(Complaint),
                                cudaMemcpyDeviceToHost, stream_));
  ONNX_FP8_CUDA(cudaStreamSynchronize(stream_));
  Complaint seen = *seen_;
  if (seen.message == 0) return;
  ONNX_FP8_CUDA(cudaMemsetAsync(complaint_, 0, sizeof(Complaint), stream_));
  Fail(messages_[seen.message - 1], seen.value);
}

}  // namespace onnx_fp8::cuda
