// SPDX-License-Identifier: Apache-2.0
//
// Stochastic rounding of state. The draw of an element depends on the run's
// seed, the number of the update, the tensor and the element's place in the
// whole tensor alone: it is the same on every mesh, device and thread count.
// GPUs call constexpr functions, too. The body of the op RoundStochastic
// (graph/schemas/round_stochastic.cc) is the specification.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

namespace onnx_fp8 {

// Where the elements of a part lie in the whole tensor, both in row-major
// order: runs of `run` elements of the part begin `stride` elements apart in
// the whole tensor, the first one at `begin`. `shift`: elements of these runs
// that precede the part. The default: the part is the whole tensor.
struct ElementPlaces {
  int64_t shift = 0, run = 1, stride = 1, begin = 0;

  constexpr int64_t Of(int64_t i) const {
    i += shift;
    return i / run * stride + begin + i % run;
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

// The key of a tensor's draws in one update. `stream`: the tensor's.
constexpr uint32_t DrawKey(int64_t seed, uint32_t stream, int64_t update) {
  uint32_t key = MixBits(static_cast<uint32_t>(seed) ^ stream);
  key = MixBits(static_cast<uint32_t>(static_cast<uint64_t>(seed) >> 32) ^ key);
  return MixBits(static_cast<uint32_t>(update) ^ key);
}

// The key of 2^32 elements: of those with these upper 32 bits of the place.
constexpr uint32_t DrawKeyOf(uint32_t key, int64_t place) {
  return MixBits(static_cast<uint32_t>(place >> 32) ^ key);
}

// Uniform in [0, 2^16): the draw of the element with these lower bits.
constexpr uint32_t DrawAt(uint32_t key, uint32_t place) {
  return MixBits(place ^ key) >> 16;
}

// The float of these bits as a bfloat16: it is rounded away from zero with the
// probability of its distance to the number below, in 2^16ths. Finite numbers
// stay finite. A number that is a bfloat16 already keeps its value.
constexpr uint16_t RoundBFloat16(uint32_t bits, uint32_t draw) {
  constexpr uint32_t kInfinity = 0x7F800000, kLargest = 0x7F7F;
  const uint32_t magnitude = bits & 0x7FFFFFFF, sign = (bits ^ magnitude) >> 16;
  const uint32_t rounded = std::min((magnitude + draw) >> 16, kLargest);
  const uint32_t nan = magnitude > kInfinity ? 0x40 : 0;
  return static_cast<uint16_t>(
      sign | (magnitude < kInfinity ? rounded : (magnitude >> 16) | nan));
}

}  // namespace onnx_fp8
