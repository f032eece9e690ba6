// SPDX-License-Identifier: Apache-2.0
//
// Kernels compute in float: they load floats that may be kept in 16 bits, four
// at a time where they can, and store the numbers that are kept.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "providers/cuda/core/device.h"
#include "providers/cuda/core/floats.h"

namespace onnx_fp8::cuda {

__device__ inline float Load(FloatsIn x, int64_t i) {
  switch (x.storage) {
    case Storage::kBFloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(x.data)[i]);
    case Storage::kFloat16:
      return __half2float(static_cast<const __half*>(x.data)[i]);
    default:
      return static_cast<const float*>(x.data)[i];
  }
}

// How a tensor is kept. Where the compiler knows, the code is shorter: kernels
// have a form for tensors that are all kept as bfloat16.
template <bool kNarrow>
__device__ Storage KnownStorage(Storage storage) {
  return kNarrow ? Storage::kBFloat16 : storage;
}

template <bool kNarrow>
__device__ FloatsIn Known(FloatsIn x) {
  return {x.data, KnownStorage<kNarrow>(x.storage)};
}

template <bool kNarrow>
__device__ FloatsOut Known(FloatsOut y) {
  return {y.data, KnownStorage<kNarrow>(y.storage)};
}

// The number that is kept of x.
__device__ inline float Rounded(Storage storage, float x) {
  switch (storage) {
    case Storage::kBFloat16:
      return __bfloat162float(__float2bfloat16_rn(x));
    case Storage::kFloat16:
      return __half2float(__float2half_rn(x));
    default:
      return x;
  }
}

// y[i] = x, and the number that is kept.
__device__ inline float Store(FloatsOut y, int64_t i, float x) {
  switch (y.storage) {
    case Storage::kBFloat16: {
      __nv_bfloat16 rounded = __float2bfloat16_rn(x);
      static_cast<__nv_bfloat16*>(y.data)[i] = rounded;
      return __bfloat162float(rounded);
    }
    case Storage::kFloat16: {
      __half rounded = __float2half_rn(x);
      static_cast<__half*>(y.data)[i] = rounded;
      return __half2float(rounded);
    }
    default:
      static_cast<float*>(y.data)[i] = x;
      return x;
  }
}

// ---- vectorized loads
//
// A kernel moves several elements in one instruction. A Vector has them as they
// are stored; ToFloats converts them. A thread that loads all of its vectors
// before it converts the first one waits only once.

// The registers of one load: four elements, or 16 bytes.
struct Vector {
  uint32_t words[4];  // floats, or two 16-bit floats each
};

// An element as it is stored.
template <Storage kStorage>
using StorageBits =
    std::conditional_t<kStorage == Storage::kFloat, uint32_t, uint16_t>;

// Elements i … i+3. REQUIRES: i is a multiple of 4; the tensor has them all.
__device__ inline Vector LoadVector4(FloatsIn x, int64_t i) {
  if (x.storage == Storage::kFloat) {
    uint4 v =
        *reinterpret_cast<const uint4*>(static_cast<const float*>(x.data) + i);
    return {v.x, v.y, v.z, v.w};
  }
  uint2 v =
      *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(x.data) + i);
  return {v.x, v.y, 0, 0};
}

// The 16 bytes that begin at element i: four floats, or eight 16-bit floats.
// REQUIRES: they are aligned, and the tensor has them all.
template <Storage kStorage>
__device__ Vector LoadVector16(const void* data, int64_t i) {
  uint4 v = *reinterpret_cast<const uint4*>(
      static_cast<const StorageBits<kStorage>*>(data) + i);
  return {{v.x, v.y, v.z, v.w}};
}

// Four elements of one type, which one instruction moves (two of 64 bits each).
template <typename T>
struct VectorOf4 {
  alignas(sizeof(T) < 4 ? 4 * sizeof(T) : 16) T x[4];
};

__device__ inline void ToFloats(Storage storage, const Vector& raw,
                                float (&out)[4]) {
  for (int k = 0; k < 4; ++k) {
    uint32_t word = raw.words[k / 2];
    uint32_t high = k % 2 == 0 ? word << 16 : word & 0xFFFF0000u;
    auto half = static_cast<uint16_t>(high >> 16);
    out[k] = storage == Storage::kFloat ? __uint_as_float(raw.words[k])
             : storage == Storage::kBFloat16
                 ? __uint_as_float(high)
                 : __half2float(__ushort_as_half(half));
  }
}

// The numbers of LoadVector4. REQUIRES: the same.
__device__ inline void Load4(FloatsIn x, int64_t i, float (&out)[4]) {
  ToFloats(x.storage, LoadVector4(x, i), out);
}

// The memory of two 16-bit floats. A GPU rounds two floats to them at once in
// an ordinary instruction, but one alone in the unit of square roots.
template <typename Two>
__device__ uint32_t WordOf(Two two) {
  static_assert(sizeof(Two) == sizeof(uint32_t));
  uint32_t word;
  memcpy(&word, &two, sizeof word);
  return word;
}

// Rounds both numbers as they are kept, and returns them as one word. REQUIRES:
// they are kept in 16 bits.
__device__ inline uint32_t Round2(Storage storage, float& a, float& b) {
  if (storage == Storage::kBFloat16) {
    uint32_t word = WordOf(__floats2bfloat162_rn(a, b));
    a = __uint_as_float(word << 16);
    b = __uint_as_float(word & 0xFFFF0000u);
    return word;
  }
  __half2 two = __floats2half2_rn(a, b);
  a = __low2float(two);
  b = __high2float(two);
  return WordOf(two);
}

// Leaves in x the numbers that are kept of it.
__device__ inline void Round4(Storage storage, float (&x)[4]) {
  if (storage == Storage::kFloat) return;
  Round2(storage, x[0], x[1]);
  Round2(storage, x[2], x[3]);
}

// Stores four elements, and leaves in x the numbers that are kept. REQUIRES:
// as Load4's.
__device__ inline void Store4(FloatsOut y, int64_t i, float (&x)[4]) {
  if (y.storage == Storage::kFloat) {
    *reinterpret_cast<float4*>(static_cast<float*>(y.data) + i) =
        make_float4(x[0], x[1], x[2], x[3]);
    return;
  }
  uint32_t first = Round2(y.storage, x[0], x[1]);
  uint32_t second = Round2(y.storage, x[2], x[3]);
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(y.data) + i) =
      make_uint2(first, second);
}

}  // namespace onnx_fp8::cuda
