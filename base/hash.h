// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

namespace onnx_fp8 {

// FNV-1a, 64 bits: the same on every machine. Collisions are easy to make.
inline uint64_t Hash(std::string_view text) {
  uint64_t hash = 14695981039346656037u;
  for (unsigned char letter : text) hash = (hash ^ letter) * 1099511628211u;
  return hash;
}

}  // namespace onnx_fp8
