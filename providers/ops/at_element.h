// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_fp8 {

// x + offset elements of `width` bytes.
inline const void* AtElement(const void* x, int64_t offset, size_t width) {
  return static_cast<const char*>(x) + offset * static_cast<int64_t>(width);
}
inline void* AtElement(void* x, int64_t offset, size_t width) {
  return static_cast<char*>(x) + offset * static_cast<int64_t>(width);
}

}  // namespace onnx_fp8
