// SPDX-License-Identifier: Apache-2.0
//
// Short forms of what tests of the emulated runtime do all the time. What they
// allocate lives until the program ends.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <vector>

namespace onnx_fp8::emulation_test {

// Throw an Error that names the code.
void Must(cudaError_t error);
void Must(cublasStatus_t status);

template <typename T = float>
T* OnDevice(size_t n) {
  void* p = nullptr;
  Must(cudaMalloc(&p, n * sizeof(T)));
  return static_cast<T*>(p);
}

float* Pinned(size_t n);

template <typename T>
T* Upload(const std::vector<T>& values) {
  T* p = OnDevice<T>(values.size());
  Must(cudaMemcpy(p, values.data(), values.size() * sizeof(T),
                  cudaMemcpyHostToDevice));
  return p;
}

template <typename T>
std::vector<T> Download(const T* p, size_t n) {
  std::vector<T> values(n);
  Must(cudaMemcpy(values.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost));
  return values;
}

// One that does not wait for the default stream.
cudaStream_t FreeStream();
cudaEvent_t NewEvent();

// 0, 1, 2, …
std::vector<float> Numbers(size_t n);

}  // namespace onnx_fp8::emulation_test
