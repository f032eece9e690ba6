// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cassert>
#include <cstddef>
#include <cstdint>

namespace onnx_fp8 {

// Calls fn.operator()<T>() with the unsigned type T of `width` bytes. REQUIRES:
// 1, 2, 4 or 8.
template <typename Fn>
void ForWidth(size_t width, Fn fn) {
  switch (width) {
    case 1:
      return fn.template operator()<uint8_t>();
    case 2:
      return fn.template operator()<uint16_t>();
    case 4:
      return fn.template operator()<uint32_t>();
    case 8:
      return fn.template operator()<uint64_t>();
    default:
      assert(false && "element width");
  }
}

// x + offset elements of `width` bytes.
inline const void* AtElement(const void* x, int64_t offset, size_t width) {
  return static_cast<const char*>(x) + offset * static_cast<int64_t>(width);
}
inline void* AtElement(void* x, int64_t offset, size_t width) {
  return static_cast<char*>(x) + offset * static_cast<int64_t>(width);
}

}  // namespace onnx_fp8
