// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/isa.h"

namespace onnx_fp8 {

Isa BestIsa() {
  static const Isa best = [] {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("x86-64-v4")) return Isa::kV4;
    if (__builtin_cpu_supports("x86-64-v3")) return Isa::kV3;
#endif
    return Isa::kBaseline;
  }();
  return best;
}

}  // namespace onnx_fp8
