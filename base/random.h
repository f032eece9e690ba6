// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// Counter-based generator: the i-th number depends only on (seed, i), so it is
// the same on every device and thread count, and its state is two integers.
// SplitMix64's finalizer (Steele, Lea, Flood 2014) over a Weyl sequence. GPUs
// call constexpr functions, too.
constexpr uint64_t RandomBits(uint64_t seed, uint64_t counter) {
  uint64_t z = seed * 0xD1B54A32D192ED03u + counter * 0x9E3779B97F4A7C15u +
               0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

// Uniform in [0, 1), 24 bits.
constexpr float RandomUniform(uint64_t seed, uint64_t counter) {
  return static_cast<float>(RandomBits(seed, counter) >> 40) * 0x1p-24f;
}

// Uniform in [0, n). REQUIRES: 0 < n < 2^32.
inline uint64_t RandomBelow(uint64_t seed, uint64_t counter, uint64_t n) {
  return ((RandomBits(seed, counter) >> 32) * n) >> 32;
}

}  // namespace onnx_fp8
