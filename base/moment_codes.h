// SPDX-License-Identifier: Apache-2.0
//
// Moments of an optimizer as float8e4m3 codes. A block, up to 128 elements of a
// row, has one scale: its largest finite magnitude becomes 448. A mean of
// squares is kept as its root, rounded stochastically. GPUs call constexpr
// functions, too. The bodies of graph/schemas/moments.cc are the specification.
#pragma once

#include <algorithm>
#include <cstdint>

namespace onnx_fp8 {

inline constexpr int64_t kMomentBlock = 128;

// What a code of NaN means: NaN, or infinity in a mean of squares.
inline constexpr uint32_t kLostMoment = 0x7F;

// The scale of a block. `amax`: the largest finite magnitude of its elements.
constexpr float MomentScale(float amax) {
  return std::max(amax / 448.0f, 0x1p-126f);
}

// The root of a positive mean of squares, divided by the scale, is at least
// this: the least positive code. A mean that became 0 beside a large one would
// make the next updates too large.
inline constexpr float kLeastRoot = 0x1p-9f;

// The code of the float of these bits, from kLeastRoot on: it is rounded away
// from zero with the probability of its distance to the number below, in
// 2^16ths. The largest code is 448's.
constexpr uint32_t RoundE4M3(uint32_t bits, uint32_t draw) {
  constexpr uint32_t kLeastNormal = 127 - 6, kDropped = 20, kLargest = 0x7E;
  const uint32_t exponent = bits >> 23;
  const uint32_t below = exponent < kLeastNormal ? kLeastNormal - exponent : 0;
  const uint32_t above = exponent < kLeastNormal ? 0 : exponent - kLeastNormal;
  const uint32_t mantissa = (bits & 0x7FFFFF) | 0x800000;
  const uint32_t units =
      (mantissa + (draw << (kDropped - 16 + below))) >> (kDropped + below);
  return std::min(units + 8 * above, kLargest);
}

// The blocks of a matrix, row by row, in the order of memory.
struct MomentBlocks {
  int64_t rows = 0, columns = 0;

  constexpr int64_t per_row() const {
    return (columns + kMomentBlock - 1) / kMomentBlock;
  }
  constexpr int64_t count() const { return rows * per_row(); }
  // The first element of a block; of the block behind the last one: the number
  // of elements. REQUIRES: there are columns.
  constexpr int64_t Begin(int64_t block) const {
    return block / per_row() * columns + block % per_row() * kMomentBlock;
  }
  // The block of an element. REQUIRES: there are columns.
  constexpr int64_t Of(int64_t element) const {
    return element / columns * per_row() + element % columns / kMomentBlock;
  }
};

}  // namespace onnx_fp8
