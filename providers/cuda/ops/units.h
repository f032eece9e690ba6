// SPDX-License-Identifier: Apache-2.0
//
// Ops that only move elements move up to 16 bytes at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>

#include "providers/cuda/core/device.h"
#include "providers/ops/for_width.h"

namespace onnx_fp8::cuda {

// The bytes of the largest unit, of at most 16, of which the addresses and
// these numbers of elements are multiples. An element has `bytes` bytes.
inline size_t UnitOf(size_t bytes, std::initializer_list<const void*> addresses,
                     std::initializer_list<int64_t> elements) {
  size_t unit = 16;
  for (const void* address : addresses) {
    while (reinterpret_cast<uintptr_t>(address) % unit != 0) unit /= 2;
  }
  for (int64_t count : elements) {
    while (static_cast<size_t>(std::abs(count)) * bytes % unit != 0) unit /= 2;
  }
  return unit;
}

// Calls fn.operator()<T>() with a type T of `bytes` bytes. REQUIRES: 1, 2, 4, 8
// or 16.
template <typename Fn>
void ForUnit(size_t bytes, Fn fn) {
  if (bytes == 16) return fn.template operator()<uint4>();
  ForWidth(bytes, fn);
}

}  // namespace onnx_fp8::cuda
