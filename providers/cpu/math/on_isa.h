// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "providers/cpu/math/isa.h"

namespace onnx_fp8 {

// Functions that inline all they call, per instruction set; see OnIsa.
#if defined(__x86_64__)
#if defined(__clang__)  // takes vectors of 512 bits unless a CPU prefers others
#define ONNX_FP8_AVX512 "avx512f,avx512bw,avx512vl,avx512dq"
#else
#define ONNX_FP8_AVX512 \
  "avx512f,avx512bw,avx512vl,avx512dq,prefer-vector-width=512"
#endif
template <typename Fn>
__attribute__((noinline, flatten, target(ONNX_FP8_AVX512))) void RunOnAvx512(
    Fn fn) {
  fn();
}

template <typename Fn>
__attribute__((noinline, flatten, target("avx2,fma"))) void RunOnAvx2(Fn fn) {
  fn();
}
#endif

template <typename Fn>
__attribute__((noinline, flatten)) void RunPortably(Fn fn) {
  fn();
}

// Calls fn(), compiled once per instruction set: fn is inlined whole, so its
// loops over arrays are vectorized for the set that is chosen here. The build
// contracts no multiply-adds on its own, so all sets give the same bits. fn
// captures by value (a reference could alias its output) and throws nothing
// (messages would be inlined too). Function versions by ifunc (target_clones)
// would do the same, but not for templates. REQUIRES: HasIsa(isa).
template <typename Fn>
void OnIsa(Isa isa, Fn fn) {
#if defined(__x86_64__)
  if (isa >= Isa::kAvx512) return RunOnAvx512(fn);
  if (isa == Isa::kAvx2) return RunOnAvx2(fn);
#else
  (void)isa;
#endif
  RunPortably(fn);
}

template <typename Fn>
void OnBestIsa(Fn fn) {
  OnIsa(ActiveIsa(), fn);
}

}  // namespace onnx_fp8
