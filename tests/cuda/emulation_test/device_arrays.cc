// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation_test/device_arrays.h"

#include <numeric>

#include "base/check.h"

namespace onnx_fp8::emulation_test {

void Must(cudaError_t error) {
  Check(error == cudaSuccess, cudaGetErrorName(error));
}

void Must(cublasStatus_t status) {
  Check(status == CUBLAS_STATUS_SUCCESS, cublasLtGetStatusName(status));
}

float* Pinned(size_t n) {
  void* p = nullptr;
  Must(cudaMallocHost(&p, n * sizeof(float)));
  return static_cast<float*>(p);
}

cudaStream_t FreeStream() {
  cudaStream_t stream = nullptr;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

cudaEvent_t NewEvent() {
  cudaEvent_t event = nullptr;
  Must(cudaEventCreate(&event));
  return event;
}

std::vector<float> Numbers(size_t n) {
  std::vector<float> values(n);
  std::iota(values.begin(), values.end(), 0.0f);
  return values;
}

}  // namespace onnx_fp8::emulation_test
