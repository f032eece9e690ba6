// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/core/registrations.h"

// cmake/cuda.cmake collects nvcc's functions in the section
// `cuda_registrations`, whose ends the linker names. The emulated device has
// no such section.
extern "C" {
using Registration = void();
extern Registration* const __start_cuda_registrations[]
    __attribute__((weak, visibility("hidden")));
extern Registration* const __stop_cuda_registrations[]
    __attribute__((weak, visibility("hidden")));
}

namespace onnx_fp8::cuda {

void RegisterWithRuntime() {
  static const bool done = [] {
    for (auto* at = __start_cuda_registrations; at != __stop_cuda_registrations;
         ++at) {
      (*at)();
    }
    return true;
  }();
  static_cast<void>(done);
}

}  // namespace onnx_fp8::cuda
