// SPDX-License-Identifier: Apache-2.0
//
// Atomics of integers. Atomics of floats are left out: the order of their sums
// would change results from run to run.
//
// A thread gives way only at barriers, so that plain accesses are atomic.
#pragma once

#include <cstddef>
#include <type_traits>

namespace onnx_fp8::emulation {

// Tells the checks of accesses (access_checks.h) about an atomic access.
void NoteAtomic(const void* p, size_t bytes);

template <typename T>
concept AtomicInteger = std::is_same_v<T, int> || std::is_same_v<T, unsigned> ||
    std::is_same_v<T, unsigned long long>;

// Gives back the old value. The compiler's own checks do not see accesses of
// assembly.
template <AtomicInteger T, typename F>
[[gnu::always_inline]] inline T Atomically(T* p, F change) {
  NoteAtomic(p, sizeof(T));
  T old;
  asm volatile("mov %1, %0" : "=r"(old) : "m"(*p));
  T now = static_cast<T>(change(old));
  asm volatile("mov %1, %0" : "=m"(*p) : "r"(now));
  return old;
}

}  // namespace onnx_fp8::emulation

#define ONNX_FP8_ATOMIC(name, result)                                         \
  template <onnx_fp8::emulation::AtomicInteger T>                             \
  [[gnu::always_inline]] inline T name(T* p, std::type_identity_t<T> v) {     \
    return onnx_fp8::emulation::Atomically(p, [v](T old) { return result; }); \
  }
ONNX_FP8_ATOMIC(atomicAdd, old + v)
ONNX_FP8_ATOMIC(atomicSub, old - v)
ONNX_FP8_ATOMIC(atomicMax, old < v ? v : old)
ONNX_FP8_ATOMIC(atomicMin, v < old ? v : old)
ONNX_FP8_ATOMIC(atomicAnd, old& v)
ONNX_FP8_ATOMIC(atomicOr, old | v)
ONNX_FP8_ATOMIC(atomicXor, old ^ v)
ONNX_FP8_ATOMIC(atomicExch, (static_cast<void>(old), v))
#undef ONNX_FP8_ATOMIC

template <onnx_fp8::emulation::AtomicInteger T>
[[gnu::always_inline]] inline T atomicCAS(T* p,
                                          std::type_identity_t<T> expected,
                                          std::type_identity_t<T> value) {
  return onnx_fp8::emulation::Atomically(
      p, [=](T old) { return old == expected ? value : old; });
}
