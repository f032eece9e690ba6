// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "onnx_fp8/provider_options.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// The provider of the current NVIDIA GPU. Errors: there is no driver or no GPU,
// or the GPU is older than Hopper (compute capability 9.0); the program can't
// open the library with the provider (training/load_cuda.cc).
std::unique_ptr<ExecutionProvider> MakeCudaProvider(
    const ProviderOptions& options = {});

// A machine needs no GPU for them. Errors: as above, of the library.
const KernelRegistry& CudaKernels();

}  // namespace onnx_fp8
