// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/isa.h"

namespace onnx_fp8 {

bool HasIsa(Isa isa) {
#if defined(__x86_64__)
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("f16c");
  if (isa == Isa::kAvx2) return avx2;
  if (isa == Isa::kAvx512) {
    return avx2 && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") &&
           __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vbmi");
  }
#endif
  return isa == Isa::kPortable;
}

Isa ActiveIsa() {
  static const Isa isa = HasIsa(Isa::kAvx512) ? Isa::kAvx512
                         : HasIsa(Isa::kAvx2) ? Isa::kAvx2
                                              : Isa::kPortable;
  return isa;
}

const char* CpuIsa() {
  switch (ActiveIsa()) {
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAvx2:
      return "avx2";
    default:
      return "portable";
  }
}

}  // namespace onnx_fp8
