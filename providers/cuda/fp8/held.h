// SPDX-License-Identifier: Apache-2.0
//
// What a thread of a quantizer holds: kHeld elements as they are kept, in
// vectors of 16 bytes. All loads start before the first element is needed. A
// thread measures its elements as they are kept, two at a time where they have
// 16 bits, and looks at them one by one only if one is NaN or infinite.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"

namespace onnx_fp8::cuda {

inline constexpr int kHeld = 32;
inline constexpr int kWords = 4;  // of a vector
inline constexpr uint32_t kLargestFinite = 0x7F7FFFFFu;

// Elements of a vector, and vectors of a thread.
template <Storage kStorage>
inline constexpr int kWidth = kStorage == Storage::kFloat ? 4 : 8;
template <Storage kStorage>
inline constexpr int kVectors = kHeld / kWidth<kStorage>;

// An element as it is kept.
template <Storage kStorage>
using Bits =
    std::conditional_t<kStorage == Storage::kFloat, uint32_t, uint16_t>;

struct Vector {
  uint32_t words[kWords];
};

// The vector that begins at element `at`, of which elements first … end-1
// exist.
struct Place {
  int64_t at;
  int first, end;
};

// Calls f(kept) with a constant: so nothing in f depends on how x is kept.
// REQUIRES: in 16 bits if kNarrow, else as floats.
template <bool kNarrow, typename F>
__device__ void WithStorage(Storage storage, const F& f) {
  if constexpr (!kNarrow) {
    f(std::integral_constant<Storage, Storage::kFloat>());
  } else if (storage == Storage::kBFloat16) {
    f(std::integral_constant<Storage, Storage::kBFloat16>());
  } else {
    f(std::integral_constant<Storage, Storage::kFloat16>());
  }
}

// ---- loads and stores

template <Storage kStorage>
__device__ bool IsWhole(const Place& p) {
  return p.first <= 0 && p.end >= kWidth<kStorage>;
}

// A vector of which some elements don't exist; these are 0.
template <Storage kStorage>
__device__ Vector LoadPart(const void* data, const Place& p) {
  Vector to = {};
  int end = p.end < kWidth<kStorage> ? p.end : kWidth<kStorage>;
  ONNX_FP8_KEEP_LOOP
  for (int k = p.first > 0 ? p.first : 0; k < end; ++k) {
    uint32_t bits = static_cast<const Bits<kStorage>*>(data)[p.at + k];
    int word = k;
    if constexpr (kStorage != Storage::kFloat) {
      bits <<= 16 * (k % 2);
      word = k / 2;
    }
    ONNX_FP8_UNROLL
    for (int w = 0; w < kWords; ++w) to.words[w] |= w == word ? bits : 0;
  }
  return to;
}

// Vectors place(0), place(1), … of a tensor. `aligned`: where a vector begins,
// the memory of x and of the codes allows to move it at once.
template <Storage kStorage, typename PlaceOf>
__device__ void LoadHeld(const void* data, bool aligned, const PlaceOf& place,
                         Vector (&x)[kVectors<kStorage>]) {
  auto* elements = static_cast<const Bits<kStorage>*>(data);
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    Place p = place(v);
    x[v] = {};
    if (aligned && IsWhole<kStorage>(p)) {
      uint4 words = *reinterpret_cast<const uint4*>(elements + p.at);
      x[v] = {{words.x, words.y, words.z, words.w}};
    }
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    Place p = place(v);
    if (aligned && IsWhole<kStorage>(p)) continue;
    if (p.end > 0) x[v] = LoadPart<kStorage>(data, p);
  }
}

// The codes of a vector, four in a word.
template <Storage kStorage>
struct HeldCodes {
  uint32_t words[kWidth<kStorage> / 4];
};

template <Storage kStorage>
__device__ void StoreHeldCodes(uint8_t* q, bool aligned, const Place& p,
                               const HeldCodes<kStorage>& codes) {
  uint8_t* to = q + p.at;
  if (aligned && IsWhole<kStorage>(p)) {
    if constexpr (kStorage == Storage::kFloat) {
      *reinterpret_cast<uint32_t*>(to) = codes.words[0];
    } else {
      *reinterpret_cast<uint2*>(to) =
          make_uint2(codes.words[0], codes.words[1]);
    }
    return;
  }
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kStorage>; ++k) {
    if (k < p.first || k >= p.end) continue;
    to[k] = static_cast<uint8_t>(codes.words[k / 4] >> 8 * (k % 4));
  }
}

// The elements of a tensor of n that 256 threads hold from element `first` on.
template <Storage kStorage>
struct InRun {
  static constexpr int kThreadsOfRun = 256;
  static constexpr int kElements = kThreadsOfRun * kHeld;

  int64_t at;
  int left;  // from there on, as far as it matters

  __device__ InRun(int64_t first, int64_t n) {
    int own = static_cast<int>(threadIdx.x) * kWidth<kStorage>;
    int64_t in_run = n - first;
    at = first + own;
    left = (in_run < kElements ? static_cast<int>(in_run) : kElements) - own;
  }
  __device__ Place operator()(int v) const {
    constexpr int kStep = kThreadsOfRun * kWidth<kStorage>;
    return {at + v * kStep, 0, left - v * kStep};
  }
};

// ---- amaxes

// The magnitudes in a word. kFinite: 0 for NaN and infinity.
template <Storage kStorage, bool kFinite>
__device__ uint32_t Magnitudes(uint32_t word) {
  if constexpr (kStorage == Storage::kFloat) {
    uint32_t magnitude = word & 0x7FFFFFFFu;
    return kFinite && magnitude > kLargestFinite ? 0 : magnitude;
  } else {
    constexpr uint32_t kInf =
        kStorage == Storage::kBFloat16 ? 0x7F80u : 0x7C00u;
    uint32_t both = word & 0x7FFF7FFFu;
    if (kFinite && (both & 0xFFFFu) >= kInf) both &= 0xFFFF0000u;
    if (kFinite && both >> 16 >= kInf) both &= 0xFFFFu;
    return both;
  }
}

template <Storage kStorage>
__device__ uint32_t Larger(uint32_t a, uint32_t b) {
  if constexpr (kStorage == Storage::kFloat) {
    return a > b ? a : b;
  } else {
    return __vmaxu2(a, b);
  }
}

// A magnitude's bits, widened to the bits of a float.
template <Storage kStorage>
__device__ uint32_t FloatBits(uint32_t magnitude) {
  if constexpr (kStorage == Storage::kBFloat16) return magnitude << 16;
  if constexpr (kStorage == Storage::kFloat16) {
    auto half = __ushort_as_half(static_cast<uint16_t>(magnitude));
    return __float_as_uint(__half2float(half));
  }
  return magnitude;
}

// The larger magnitude in a word, as a float's bits.
template <Storage kStorage>
__device__ uint32_t PeakOfWord(uint32_t word) {
  if constexpr (kStorage == Storage::kFloat) return word;
  uint32_t low = word & 0xFFFFu, high = word >> 16;
  return FloatBits<kStorage>(low > high ? low : high);
}

template <Storage kStorage, bool kFinite>
__device__ uint32_t PeakOfVector(const Vector& x) {
  uint32_t peak = Magnitudes<kStorage, kFinite>(x.words[0]);
  ONNX_FP8_UNROLL
  for (int w = 1; w < kWords; ++w) {
    peak = Larger<kStorage>(peak, Magnitudes<kStorage, kFinite>(x.words[w]));
  }
  return peak;
}

// Two halves of a column's elements, or whole ones: in word w, the largest
// magnitudes of the vectors' words w.
template <Storage kStorage, bool kFinite, int kCount>
__device__ Vector PeaksAcross(const Vector (&x)[kCount]) {
  Vector peaks;
  ONNX_FP8_UNROLL
  for (int w = 0; w < kWords; ++w) {
    peaks.words[w] = Magnitudes<kStorage, kFinite>(x[0].words[w]);
    ONNX_FP8_UNROLL
    for (int v = 1; v < kCount; ++v) {
      peaks.words[w] = Larger<kStorage>(
          peaks.words[w], Magnitudes<kStorage, kFinite>(x[v].words[w]));
    }
  }
  return peaks;
}

// In word w, the largest finite magnitudes of the words w of all vectors.
template <Storage kStorage, int kCount>
__device__ Vector FinitePeaksAcross(const Vector (&x)[kCount], AmaxPart& seen) {
  Vector peaks = PeaksAcross<kStorage, false>(x);
  uint32_t all = PeakOfWord<kStorage>(PeakOfVector<kStorage, false>(peaks));
  if (all > kLargestFinite) {
    seen.non_finite = 1;
    peaks = PeaksAcross<kStorage, true>(x);
    all = PeakOfWord<kStorage>(PeakOfVector<kStorage, false>(peaks));
  }
  seen.finite = seen.finite > all ? seen.finite : all;
  return peaks;
}

// The largest finite magnitude of all vectors, as a float's bits.
template <Storage kStorage, int kCount>
__device__ uint32_t FinitePeak(const Vector (&x)[kCount], AmaxPart& seen) {
  Vector peaks = FinitePeaksAcross<kStorage>(x, seen);
  return PeakOfWord<kStorage>(PeakOfVector<kStorage, false>(peaks));
}

// The same for each vector by itself.
template <Storage kStorage, int kCount>
__device__ void FinitePeaks(const Vector (&x)[kCount], AmaxPart& seen,
                            uint32_t (&peaks)[kCount]) {
  uint32_t all = 0;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kCount; ++v) {
    peaks[v] = PeakOfWord<kStorage>(PeakOfVector<kStorage, false>(x[v]));
    all = all > peaks[v] ? all : peaks[v];
  }
  if (all > kLargestFinite) {
    seen.non_finite = 1;
    all = 0;
    ONNX_FP8_UNROLL
    for (int v = 0; v < kCount; ++v) {
      peaks[v] = PeakOfWord<kStorage>(PeakOfVector<kStorage, true>(x[v]));
      all = all > peaks[v] ? all : peaks[v];
    }
  }
  seen.finite = seen.finite > all ? seen.finite : all;
}

// The largest peak of each vector among `lanes` neighboring lanes, a power of
// two.
template <int kCount>
__device__ void LargestOfLanes(int lanes, uint32_t (&peaks)[kCount]) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  ONNX_FP8_KEEP_LOOP
  for (int apart = lanes / 2; apart > 0; apart /= 2) {
    ONNX_FP8_UNROLL
    for (int v = 0; v < kCount; ++v) {
      uint32_t other = __shfl_xor_sync(kAll, peaks[v], apart);
      peaks[v] = other > peaks[v] ? other : peaks[v];
    }
  }
}

// ---- codes

template <Storage kStorage>
__device__ void FloatsOfVector(const Vector& x, float (&to)[kWidth<kStorage>]) {
  ONNX_FP8_UNROLL
  for (int k = 0; k < kWidth<kStorage>; ++k) {
    if constexpr (kStorage == Storage::kFloat) {
      to[k] = __uint_as_float(x.words[k]);
    } else {
      uint32_t word = x.words[k / 2];
      if constexpr (kStorage == Storage::kBFloat16) {
        to[k] = __uint_as_float(k % 2 ? word & 0xFFFF0000u : word << 16);
      } else {
        uint32_t half = k % 2 ? word >> 16 : word & 0xFFFFu;
        to[k] = __half2float(__ushort_as_half(static_cast<uint16_t>(half)));
      }
    }
  }
}

// The codes of the elements times factor(k). `special`: an element may be NaN.
template <Storage kStorage, bool kE4M3, typename FactorOf>
__device__ HeldCodes<kStorage> CodesOfVector(const Vector& x,
                                             const FactorOf& factor,
                                             bool special) {
  float plain[kWidth<kStorage>];
  FloatsOfVector<kStorage>(x, plain);
  HeldCodes<kStorage> codes;
  ONNX_FP8_UNROLL
  for (int w = 0; w < kWidth<kStorage> / 4; ++w) {
    const float* f = plain + 4 * w;
    auto code = [&](int k) {
      return EncodeProduct<kE4M3>(f[k], factor(4 * w + k)) << 8 * k;
    };
    auto scaled = [&](int k) { return f[k] * factor(4 * w + k); };
    codes.words[w] = special ? code(0) | code(1) | code(2) | code(3)
                             : EncodeNumbers<kE4M3>(scaled(0), scaled(1),
                                                    scaled(2), scaled(3));
  }
  return codes;
}

// Whether products of finite numbers with the factor may be NaN.
__device__ inline bool IsSpecial(float factor) {
  return (__float_as_uint(factor) & 0x7FFFFFFFu) > kLargestFinite;
}

// Stores the codes of all vectors: element k of vector v times factor(v, k).
template <Storage kStorage, typename PlaceOf, typename FactorOf>
__device__ void EncodeHeld(const Vector (&x)[kVectors<kStorage>], bool e4m3,
                           bool special, uint8_t* q, bool aligned,
                           const PlaceOf& place, const FactorOf& factor) {
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    auto factor_of = [&](int k) { return factor(v, k); };
    StoreHeldCodes<kStorage>(
        q, aligned, place(v),
        e4m3 ? CodesOfVector<kStorage, true>(x[v], factor_of, special)
             : CodesOfVector<kStorage, false>(x[v], factor_of, special));
  }
}

}  // namespace onnx_fp8::cuda
