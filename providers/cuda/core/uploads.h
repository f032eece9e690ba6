// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "providers/cuda/core/queue.h"

namespace onnx_fp8::cuda {

// Tables that the host computes from shapes and attributes, on the device. Each
// is copied once and stays as long as the queue, because a recorded step uses
// its address again.
class Uploads {
 public:
  Uploads() = default;
  ~Uploads();
  Uploads(const Uploads&) = delete;
  Uploads& operator=(const Uploads&) = delete;

  // The same bytes have the same address. It is a multiple of 256. Errors: out
  // of memory.
  const void* Find(Queue& queue, const void* bytes, size_t size);

 private:
  std::map<std::string, void*> known_;  // by their bytes
};

// The numbers on the device.
template <typename T>
const T* Uploaded(const KernelContext& ctx, std::span<const T> numbers) {
  Queue& queue = QueueOf(ctx);
  return static_cast<const T*>(
      queue.Own<Uploads>().Find(queue, numbers.data(), numbers.size_bytes()));
}

}  // namespace onnx_fp8::cuda
