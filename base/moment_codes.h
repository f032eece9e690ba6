// SPDX-License-Identifier: Apache-2.0
//
// Moments of an optimizer as float8e4m3 codes. A block, up to 128 elements of a
// row, has one scale: its largest finite magnitude becomes 448. A mean of
// squares is kept as its root, rounded stochastically. GPUs call constexpr
// functions, too. The bodies of graph/schemas/moments.cc are the specification.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

namespace onnx_fp8 {

inline constexpr int64_t kMomentBlock = 128;

// This code stands for NaN in a mean, and for infinity in a mean of squares.
inline constexpr uint32_t kLostMoment = 0x7F;

// The scale of a block. `amax`: the largest finite magnitude of its elements.
constexpr float MomentScale(float amax) {
  return std::max(amax / 448.0f, 0x1p-126f);
}

// The least positive number of a code. Smaller positive roots become this
// number first: an update divides by the root, so a code of 0 would make it too
// large.
inline constexpr float kLeastRoot = 0x1p-9f;

// Rounds the float with these bits, at least kLeastRoot, to a code. The numbers
// of two neighboring codes are a unit apart. If the float exceeds the lower one
// by n / 2^16 of the unit, n draws of 2^16 give the upper one. The largest
// result is the code of 448.
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

// The code of a mean of squares. `root`: the mean's root; `scale`: its block's.
constexpr uint32_t CodeOfRoot(float root, float scale, uint32_t draw) {
  const float quotient = std::max(root / scale, kLeastRoot);
  const uint32_t rounded = RoundE4M3(std::bit_cast<uint32_t>(quotient), draw);
  const uint32_t number = root > 0 ? rounded : 0;
  const bool is_lost = root - root != 0;
  return is_lost ? kLostMoment : number;
}

// The mean of squares with that root, which is NaN for the code kLostMoment.
constexpr float MeanOfRoot(float root) {
  const float square = root * root;
  return square == square ? square : std::numeric_limits<float>::infinity();
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
