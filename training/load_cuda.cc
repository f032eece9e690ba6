// SPDX-License-Identifier: Apache-2.0
//
// The provider cuda lies in a library of its own, which nvcc takes minutes to
// make, and only a run on a GPU opens. Programs that test the provider are
// linked with it: its definitions of these functions precede ours.
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
