// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <typeindex>
#include <vector>

#include "onnx_fp8/provider_options.h"
#include "providers/cuda/core/staging.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {

// On the device: the first bad value that a kernel met, and the number of the
// message that it belongs to; 0: none.
struct Complaint {
  uint32_t message;
  int64_t value;
};

// Whose blocks a GPU starts first where streams have some to start. Those of
// updates of the host's memory wait for the bus, and would fill the GPU.
enum class Priority { kUsual, kLow };

// The stream of a provider, and what its kernels share.
class Queue {
 public:
  // Errors: the CUDA runtime's.
  explicit Queue(const ProviderOptions& options = {},
                 Priority priority = Priority::kUsual);
  ~Queue();
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  const ProviderOptions& options() const { return options_; }
  cudaStream_t stream() const { return stream_; }
  Staging& staging() { return *staging_; }

  // The queue's only object of class T, made when it is first asked for.
  // Errors: T's.
  template <typename T>
  T& Own() {
    std::shared_ptr<void>& object = owned_[typeid(T)];
    if (!object) object = std::make_shared<T>();
    return *static_cast<T*>(object.get());
  }

  // Where kernels complain of data, and the number of a message, which ends
  // with "got ". Errors: out of memory.
  Complaint* complaint() { return complaint_; }
  uint32_t MessageNumber(const std::string& message);

  // Waits until all work is done. Errors: failures of that work; the message of
  // a complaint and its value.
  void Synchronize();

 private:
  ProviderOptions options_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<Staging> staging_;
  std::map<std::type_index, std::shared_ptr<void>> owned_;
  Complaint* complaint_ = nullptr;
  Complaint* seen_ = nullptr;  // a copy in pinned memory
  std::vector<std::string> messages_;
  std::map<std::string, uint32_t> numbers_;
};

// The queue that a kernel adds its work to.
inline Queue& QueueOf(const KernelContext& ctx) {
  return *static_cast<Queue*>(ctx.queue());
}

}  // namespace onnx_fp8::cuda
