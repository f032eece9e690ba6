// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/staging.h"

#include <algorithm>
#include <cstring>

#include "providers/cuda/core/check.h"

namespace onnx_fp8::cuda {
namespace {

// Enough for the feeds of two steps, which are small, and to keep the bus busy
// while weights are copied.
constexpr size_t kBlocks = 8, kBlockBytes = size_t{4} << 20;

}  // namespace

Staging::~Staging() {
  for (Block& block : blocks_) {
    cudaEventDestroy(block.copied);
    cudaFreeHost(block.data);
  }
}

Staging::Block& Staging::FreeBlock() {
  if (blocks_.size() < kBlocks) {
    Block block;
    ONNX_FP8_CUDA(cudaMallocHost(&block.data, kBlockBytes));
    ONNX_FP8_CUDA(
        cudaEventCreateWithFlags(&block.copied, cudaEventDisableTiming));
    blocks_.push_back(block);
    return blocks_.back();
  }
  Block& block = blocks_[next_++ % kBlocks];
  ONNX_FP8_CUDA(cudaEventSynchronize(block.copied));
  return block;
}

void Staging::ToDevice(const void* host, void* device, size_t bytes) {
  const auto* from = static_cast<const char*>(host);
  auto* to = static_cast<char*>(device);
  for (size_t at = 0; at < bytes; at += kBlockBytes) {
    size_t n = std::min(kBlockBytes, bytes - at);
    Block& block = FreeBlock();
    std::memcpy(block.data, from + at, n);
    ONNX_FP8_CUDA(
        cudaMemcpyAsync(to + at, block.data, n, cudaMemcpyDefault, stream_));
    ONNX_FP8_CUDA(cudaEventRecord(block.copied, stream_));
  }
}

void Staging::ToHost(const void* device, void* host, size_t bytes) {
  const auto* from = static_cast<const char*>(device);
  auto* to = static_cast<char*>(host);
  for (size_t at = 0; at < bytes; at += kBlockBytes) {
    size_t n = std::min(kBlockBytes, bytes - at);
    Block& block = FreeBlock();
    ONNX_FP8_CUDA(
        cudaMemcpyAsync(block.data, from + at, n, cudaMemcpyDefault, stream_));
    ONNX_FP8_CUDA(cudaEventRecord(block.copied, stream_));
    ONNX_FP8_CUDA(cudaEventSynchronize(block.copied));
    std::memcpy(to + at, block.data, n);
  }
}

}  // namespace onnx_fp8::cuda
