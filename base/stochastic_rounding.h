// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding of state. The draw of an element depends on the run's
// seed, the number of the update, the tensor and the element's place in the
// whole tensor alone: it is the same on every mesh, device and thread count.
// GPUs call constexpr functions, too. The body of the op RoundStochastic
// (graph/schemas/round_stochastic.cc) is the specification.
#pragma once

#include <algorithm>
#include <cstdint>

namespace onnx_fp8 {

// Where the elements of a part lie in the whole tensor. Both are in row-major
// order. The whole tensor has a run of `run` elements at `begin`, and the next
// runs `stride` elements apart. The part is these runs in a row, without their
// first `shift` elements. The default: the part is the whole tensor.
struct ElementPlaces {
  int64_t shift = 0, run = 1, stride = 1, begin = 0;

  constexpr bool IsValid() const {
    return shift >= 0 && run > 0 && stride >= 0 && begin >= 0;
  }
  // Whether nothing lies between two runs.
  constexpr bool InARow() const { return run == stride; }

  // The place of element i. REQUIRES: IsValid().
  constexpr int64_t Of(int64_t i) const {
    i += shift;
    return begin + (InARow() ? i : i / run * stride + i % run);
  }

  bool operator==(const ElementPlaces&) const = default;
};

// A bijection of 32-bit words in which every bit of the result depends on every
// bit of x: two rounds of xorshift and multiply (Wellons 2018, "lowbias32").
constexpr uint32_t MixBits(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15)) * 0x846CA68Bu;
  return x ^ (x >> 16);
}

// The key of a tensor's draws in one update. `stream`: a hash of the tensor's
// name.
constexpr uint32_t DrawKey(int64_t seed, uint32_t stream, int64_t update) {
  uint32_t key = MixBits(static_cast<uint32_t>(seed) ^ stream);
  key = MixBits(static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32) ^ key);
  return MixBits(static_cast<uint32_t>(update) ^ key);
}

// The key of the 2^32 elements whose places have the upper 32 bits of `place`.
constexpr uint32_t DrawKeyOf(uint32_t key, int64_t place) {
  return MixBits(static_cast<uint32_t>(place >> 32) ^ key);
}

// The draw of an element, uniform in [0, 2^16). `key`: DrawKeyOf's; `place`:
// the lower 32 bits of the element's place.
constexpr uint32_t DrawAt(uint32_t key, uint32_t place) {
  return MixBits(place ^ key) >> 16;
}

// Rounds the float with these bits to a bfloat16. The two nearest bfloat16s are
// a unit apart. If the float's magnitude exceeds the lower one by n / 2^16 of
// the unit, n draws of 2^16 give the upper one. Finite numbers stay finite. A
// bfloat16 keeps its value.
constexpr uint16_t RoundBFloat16(uint32_t bits, uint32_t draw) {
  constexpr uint32_t kInfinity = 0x7F800000, kLargest = 0x7F7F;
  const uint32_t magnitude = bits & 0x7FFFFFFF, sign = (bits ^ magnitude) >> 16;
  const uint32_t rounded = std::min((magnitude + draw) >> 16, kLargest);
  const uint32_t nan = magnitude > kInfinity ? 0x40 : 0;
  return static_cast<uint16_t>(
      sign | (magnitude < kInfinity ? rounded : (magnitude >> 16) | nan));
}

}  // namespace onnx_fp8
