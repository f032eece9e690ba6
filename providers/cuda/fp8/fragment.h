// SPDX-License-Identifier: Apache-2.0
//
// A fragment: the elements of a tensor that one thread of a quantizer holds in
// registers, as they are stored, in vectors of 16 bytes. A layout says which
// ones: layout(v) gives the bounds of vector v. All loads start before the
// first element is needed. A thread measures its elements as they are stored,
// two at a time where they have 16 bits, and looks at them one by one only if
// one is NaN or infinite.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/load_store.h"

namespace onnx_fp8::cuda {

inline constexpr int kFragmentSize = 32;  // elements
inline constexpr int kVectorWords = sizeof(Vector) / sizeof(uint32_t);
inline constexpr uint32_t kLargestFinite = 0x7F7FFFFFu;

// Elements of a vector, and vectors of a fragment.
template <Storage kStorage>
inline constexpr int kVectorWidth = kStorage == Storage::kFloat ? 4 : 8;
template <Storage kStorage>
inline constexpr int kVectors = kFragmentSize / kVectorWidth<kStorage>;

// The vector that begins at element `at`, of which elements first … end-1
// exist.
struct VectorBounds {
  int64_t at;
  int first, end;
};

// Calls f(storage) with a constant: nothing in f depends on the storage of x.
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
__device__ bool IsWhole(const VectorBounds& p) {
  return p.first <= 0 && p.end >= kVectorWidth<kStorage>;
}

// A vector of which some elements don't exist; these are 0.
template <Storage kStorage>
__device__ Vector LoadPartialVector(const void* data, const VectorBounds& p) {
  Vector to = {};
  int end = p.end < kVectorWidth<kStorage> ? p.end : kVectorWidth<kStorage>;
  ONNX_FP8_KEEP_LOOP
  for (int k = p.first > 0 ? p.first : 0; k < end; ++k) {
    uint32_t bits = static_cast<const StorageBits<kStorage>*>(data)[p.at + k];
    int word = k;
    if constexpr (kStorage != Storage::kFloat) {
      bits <<= 16 * (k % 2);
      word = k / 2;
    }
    ONNX_FP8_UNROLL
    for (int w = 0; w < kVectorWords; ++w) to.words[w] |= w == word ? bits : 0;
  }
  return to;
}

// Vectors layout(0), layout(1), … of a tensor. `aligned`: where a vector
// begins, the memory of x and of the codes allows to move it at once.
template <Storage kStorage, typename Layout>
__device__ void LoadFragment(const void* data, bool aligned,
                             const Layout& layout,
                             Vector (&x)[kVectors<kStorage>]) {
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    VectorBounds p = layout(v);
    x[v] = {};
    if (aligned && IsWhole<kStorage>(p)) {
      x[v] = LoadVector16<kStorage>(data, p.at);
    }
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    VectorBounds p = layout(v);
    if (aligned && IsWhole<kStorage>(p)) continue;
    if (p.end > 0) x[v] = LoadPartialVector<kStorage>(data, p);
  }
}

// The codes of a vector, four in a word.
template <Storage kStorage>
struct VectorCodes {
  uint32_t words[kVectorWidth<kStorage> / 4];
};

template <Storage kStorage>
__device__ void StoreVectorCodes(uint8_t* q, bool aligned,
                                 const VectorBounds& p,
                                 const VectorCodes<kStorage>& codes) {
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
  for (int k = 0; k < kVectorWidth<kStorage>; ++k) {
    if (k < p.first || k >= p.end) continue;
    to[k] = static_cast<uint8_t>(codes.words[k / 4] >> 8 * (k % 4));
  }
}

// The layout of a run: 256 threads hold the elements from `first` on, of a
// tensor of n elements.
template <Storage kStorage>
struct RunLayout {
  static constexpr int kThreadsOfRun = 256;
  static constexpr int kElements = kThreadsOfRun * kFragmentSize;

  int64_t at;
  int left;  // from there on, as far as it matters

  __device__ RunLayout(int64_t first, int64_t n) {
    int own = static_cast<int>(threadIdx.x) * kVectorWidth<kStorage>;
    int64_t in_run = n - first;
    at = first + own;
    left = (in_run < kElements ? static_cast<int>(in_run) : kElements) - own;
  }
  __device__ VectorBounds operator()(int v) const {
    constexpr int kStep = kThreadsOfRun * kVectorWidth<kStorage>;
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
  for (int w = 1; w < kVectorWords; ++w) {
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
  for (int w = 0; w < kVectorWords; ++w) {
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
__device__ void FloatsOfVector(const Vector& x,
                               float (&to)[kVectorWidth<kStorage>]) {
  ONNX_FP8_UNROLL
  for (int k = 0; k < kVectorWidth<kStorage>; ++k) {
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
__device__ VectorCodes<kStorage> CodesOfVector(const Vector& x,
                                               const FactorOf& factor,
                                               bool special) {
  float plain[kVectorWidth<kStorage>];
  FloatsOfVector<kStorage>(x, plain);
  VectorCodes<kStorage> codes;
  ONNX_FP8_UNROLL
  for (int w = 0; w < kVectorWidth<kStorage> / 4; ++w) {
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
template <Storage kStorage, typename Layout, typename FactorOf>
__device__ void EncodeFragment(const Vector (&x)[kVectors<kStorage>], bool e4m3,
                               bool special, uint8_t* q, bool aligned,
                               const Layout& layout, const FactorOf& factor) {
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors<kStorage>; ++v) {
    auto factor_of = [&](int k) { return factor(v, k); };
    StoreVectorCodes<kStorage>(
        q, aligned, layout(v),
        e4m3 ? CodesOfVector<kStorage, true>(x[v], factor_of, special)
             : CodesOfVector<kStorage, false>(x[v], factor_of, special));
  }
}

}  // namespace onnx_fp8::cuda
