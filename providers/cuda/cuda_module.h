// SPDX-License-Identifier: Apache-2.0
//
// The entry of libonnx_fp8_cuda.so, the only part that is linked with CUDA.
// training/load_cuda.cc opens it. The library contains its own copies of our
// layers. Their results depend on arguments alone, and they share no state with
// the program's copies. Program and library pass each other objects of classes
// in our headers, so both must be compiled from the same headers:
// ONNX_FP8_INTERFACE is their hash (cmake/interface.cmake).
#pragma once

#include <memory>

#include "onnx_fp8/provider_options.h"
#include "providers/provider.h"

namespace onnx_fp8 {

struct CudaModule {
  std::unique_ptr<ExecutionProvider> (*make)(const ProviderOptions& options);
  const KernelRegistry& (*kernels)();
};

// `interface`: the program's ONNX_FP8_INTERFACE. null: the library has another.
using OpenCudaModule = const CudaModule* (*)(const char* interface);
inline constexpr char kOpenCudaModule[] = "onnx_fp8_open_cuda";
inline constexpr char kCudaModuleFile[] = "libonnx_fp8_cuda.so";

}  // namespace onnx_fp8
