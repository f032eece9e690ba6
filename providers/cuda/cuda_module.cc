// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/cuda_module.h"

#include <string_view>

#include "providers/cuda/cuda_provider.h"

extern "C" __attribute__((visibility("default"))) const onnx_fp8::CudaModule*
onnx_fp8_open_cuda(const char* interface) {
  static constexpr onnx_fp8::CudaModule kModule = {
      .make = onnx_fp8::MakeCudaProvider, .kernels = onnx_fp8::CudaKernels};
  return std::string_view(interface) == ONNX_FP8_INTERFACE ? &kModule : nullptr;
}
