// SPDX-License-Identifier: Apache-2.0
//
// The provider cuda lies in a library of its own: nvcc takes minutes to compile
// it, and a run on the CPU does not need it. These functions open the library
// when they are first called. Programs that test the provider are linked with
// its own definitions of the functions, which precede ours.
#include "base/check.h"
#include "collectives/load_module.h"
#include "providers/cuda/cuda_module.h"
#include "providers/cuda/cuda_provider.h"

namespace onnx_fp8 {
namespace {

constexpr Module kCuda = {.name = "provider cuda",
                          .file = kCudaModuleFile,
                          .function = kOpenCudaModule,
                          .remedy = "`./dev build --cuda` builds it"};

const CudaModule& Cuda() {
  static const CudaModule* const module = [] {
    const auto open =
        reinterpret_cast<OpenCudaModule>(LoadModule(kCuda, ModuleFolders()));
    const CudaModule* opened = open(ONNX_FP8_INTERFACE);
    Check(
        opened != nullptr, "[provider cuda] expected ", kCudaModuleFile,
        " of this build, got another build's: `./dev build --cuda` builds it");
    return opened;
  }();
  return *module;
}

}  // namespace

std::unique_ptr<ExecutionProvider> MakeCudaProvider(
    const ProviderOptions& options) {
  return Cuda().make(options);
}

const KernelRegistry& CudaKernels() { return Cuda().kernels(); }

}  // namespace onnx_fp8
