// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace onnx_fp8::cuda {

// Copies between ordinary memory of the host and the device, through blocks of
// pinned memory that take turns. The device's side may be pinned memory, too
// (ExecutionProvider::AllocateOnHost).
class Staging {
 public:
  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // Adds the copy to the stream. The host's memory may change when this
  // returns. It waits only if all blocks are in use. Errors: the runtime's.
  void ToDevice(const void* host, void* device, size_t bytes);
  // Returns when the bytes are on the host. Errors: the runtime's, and failures
  // of earlier work.
  void ToHost(const void* device, void* host, size_t bytes);

 private:
  struct Block {
    void* data = nullptr;
    cudaEvent_t copied = nullptr;
  };

  // A block that no copy uses any more.
  Block& FreeBlock();

  cudaStream_t stream_;
  std::vector<Block> blocks_;
  size_t next_ = 0;
};

}  // namespace onnx_fp8::cuda
