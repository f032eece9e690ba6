// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/uploads.h"

#include <algorithm>

#include "providers/cuda/core/check.h"

namespace onnx_fp8::cuda {

Uploads::~Uploads() {
  for (auto& [bytes, data] : known_) cudaFree(data);
}

const void* Uploads::Find(Queue& queue, const void* bytes, size_t size) {
  std::string key(static_cast<const char*>(bytes), size);
  auto it = known_.find(key);
  if (it != known_.end()) return it->second;
  void* data = nullptr;
  ONNX_FP8_CUDA(cudaMalloc(&data, std::max<size_t>(size, 1)));
  known_.emplace(std::move(key), data);
  queue.staging().ToDevice(bytes, data, size);
  return data;
}

}  // namespace onnx_fp8::cuda
