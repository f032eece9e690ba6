// SPDX-License-Identifier: Apache-2.0
//
// Collectives of the lanes of a warp.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

namespace onnx_fp8::emulation {

enum class Collective {
  kSync,
  kShuffle,
  kBallot,
  kAdd,
  kMin,
  kMax,
  kSignedMin,
  kSignedMax,
  kAnd,
  kOr,
  kXor,
};

// Waits for all lanes of the mask. Returns what lane `from` gave (kShuffle), or
// the lanes' values, reduced.
uint64_t OfWarp(Collective kind, unsigned mask, uint64_t value,
                unsigned from = 0);
unsigned Lane();

template <typename T>
T Shuffle(unsigned mask, T value, unsigned from) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>);
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof(T));
  bits = OfWarp(Collective::kShuffle, mask, bits, from);
  std::memcpy(&value, &bits, sizeof(T));
  return value;
}

// The first lane of the part of `width` lanes that holds this lane.
inline unsigned FirstOfPart(int width) {
  return Lane() & ~(static_cast<unsigned>(width) - 1);
}

inline unsigned ReduceWarp(Collective kind, unsigned mask, unsigned value) {
  return static_cast<unsigned>(OfWarp(kind, mask, value));
}

}  // namespace onnx_fp8::emulation

inline constexpr int warpSize = 32;

inline void __syncwarp(unsigned mask = 0xFFFFFFFFu) {
  using onnx_fp8::emulation::Collective;
  onnx_fp8::emulation::OfWarp(Collective::kSync, mask, 0);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int lane, int width = warpSize) {
  namespace e = onnx_fp8::emulation;
  auto within = static_cast<unsigned>(lane) % static_cast<unsigned>(width);
  return e::Shuffle(mask, value, e::FirstOfPart(width) + within);
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = warpSize) {
  namespace e = onnx_fp8::emulation;
  unsigned from = e::Lane() ^ static_cast<unsigned>(lanes);
  unsigned end = e::FirstOfPart(width) + static_cast<unsigned>(width);
  return e::Shuffle(mask, value, from < end ? from : e::Lane());
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned lanes,
                   int width = warpSize) {
  namespace e = onnx_fp8::emulation;
  unsigned from = e::Lane() + lanes;
  unsigned end = e::FirstOfPart(width) + static_cast<unsigned>(width);
  return e::Shuffle(mask, value, from < end ? from : e::Lane());
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned lanes, int width = warpSize) {
  namespace e = onnx_fp8::emulation;
  bool inside = e::Lane() >= e::FirstOfPart(width) + lanes;
  return e::Shuffle(mask, value, inside ? e::Lane() - lanes : e::Lane());
}

inline unsigned __ballot_sync(unsigned mask, int predicate) {
  using onnx_fp8::emulation::Collective;
  return onnx_fp8::emulation::ReduceWarp(Collective::kBallot, mask,
                                         predicate != 0);
}

inline int __any_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, predicate) != 0;
}

inline int __all_sync(unsigned mask, int predicate) {
  return __ballot_sync(mask, !predicate) == 0;
}

#define ONNX_FP8_REDUCE(type, name, kind)                       \
  inline type name(unsigned mask, type value) {                 \
    using onnx_fp8::emulation::Collective;                      \
    return static_cast<type>(onnx_fp8::emulation::ReduceWarp(   \
        Collective::kind, mask, static_cast<unsigned>(value))); \
  }
ONNX_FP8_REDUCE(unsigned, __reduce_add_sync, kAdd)
ONNX_FP8_REDUCE(int, __reduce_add_sync, kAdd)
ONNX_FP8_REDUCE(unsigned, __reduce_min_sync, kMin)
ONNX_FP8_REDUCE(int, __reduce_min_sync, kSignedMin)
ONNX_FP8_REDUCE(unsigned, __reduce_max_sync, kMax)
ONNX_FP8_REDUCE(int, __reduce_max_sync, kSignedMax)
ONNX_FP8_REDUCE(unsigned, __reduce_and_sync, kAnd)
ONNX_FP8_REDUCE(unsigned, __reduce_or_sync, kOr)
ONNX_FP8_REDUCE(unsigned, __reduce_xor_sync, kXor)
#undef ONNX_FP8_REDUCE
