// SPDX-License-Identifier: Apache-2.0
//
// Kernels compute in float: they load floats that may be kept in 16 bits, four
// at a time where they can, and store the numbers that are kept.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "providers/cuda/core/device.h"
#include "providers/cuda/core/floats.h"

namespace onnx_fp8::cuda {

__device__ inline float Load(FloatsIn x, int64_t i) {
  switch (x.kept) {
    case Kept::kBFloat16:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(x.data)[i]);
    case Kept::kFloat16:
      return __half2float(static_cast<const __half*>(x.data)[i]);
    default:
      return static_cast<const float*>(x.data)[i];
  }
}

// The number that is kept of x.
__device__ inline float Rounded(Kept kept, float x) {
  switch (kept) {
    case Kept::kBFloat16:
      return __bfloat162float(__float2bfloat16_rn(x));
    case Kept::kFloat16:
      return __half2float(__float2half_rn(x));
    default:
      return x;
  }
}

// y[i] = x, and the number that is kept.
__device__ inline float Store(FloatsOut y, int64_t i, float x) {
  switch (y.kept) {
    case Kept::kBFloat16: {
      __nv_bfloat16 rounded = __float2bfloat16_rn(x);
      static_cast<__nv_bfloat16*>(y.data)[i] = rounded;
      return __bfloat162float(rounded);
    }
    case Kept::kFloat16: {
      __half rounded = __float2half_rn(x);
      static_cast<__half*>(y.data)[i] = rounded;
      return __half2float(rounded);
    }
    default:
      static_cast<float*>(y.data)[i] = x;
      return x;
  }
}

// The memory of four elements. A thread that loads several of them before it
// converts the first one waits only once.
struct Raw4 {
  uint32_t words[4];  // of 16-bit floats, two
};

// Elements i … i+3. REQUIRES: i is a multiple of 4; the tensor has them all.
__device__ inline Raw4 LoadRaw4(FloatsIn x, int64_t i) {
  if (x.kept == Kept::kFloat) {
    uint4 v =
        *reinterpret_cast<const uint4*>(static_cast<const float*>(x.data) + i);
    return {v.x, v.y, v.z, v.w};
  }
  uint2 v =
      *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(x.data) + i);
  return {v.x, v.y, 0, 0};
}

__device__ inline void ToFloats(Kept kept, const Raw4& raw, float (&out)[4]) {
  for (int k = 0; k < 4; ++k) {
    uint32_t word = raw.words[k / 2];
    uint32_t high = k % 2 == 0 ? word << 16 : word & 0xFFFF0000u;
    auto half = static_cast<uint16_t>(high >> 16);
    out[k] = kept == Kept::kFloat      ? __uint_as_float(raw.words[k])
             : kept == Kept::kBFloat16 ? __uint_as_float(high)
                                       : __half2float(__ushort_as_half(half));
  }
}

// REQUIRES: as LoadRaw4's.
__device__ inline void Load4(FloatsIn x, int64_t i, float (&out)[4]) {
  ToFloats(x.kept, LoadRaw4(x, i), out);
}

// Stores four elements, and leaves in x the numbers that are kept. REQUIRES:
// as Load4's.
__device__ inline void Store4(FloatsOut y, int64_t i, float (&x)[4]) {
  if (y.kept == Kept::kFloat) {
    *reinterpret_cast<float4*>(static_cast<float*>(y.data) + i) =
        make_float4(x[0], x[1], x[2], x[3]);
    return;
  }
  uint32_t bits[4];
  for (int k = 0; k < 4; ++k) {
    if (y.kept == Kept::kBFloat16) {
      bits[k] = __bfloat16_as_ushort(__float2bfloat16_rn(x[k]));
      x[k] = __uint_as_float(bits[k] << 16);
    } else {
      __half rounded = __float2half_rn(x[k]);
      bits[k] = __half_as_ushort(rounded);
      x[k] = __half2float(rounded);
    }
  }
  *reinterpret_cast<uint2*>(static_cast<uint16_t*>(y.data) + i) =
      make_uint2(bits[0] | bits[1] << 16, bits[2] | bits[3] << 16);
}

}  // namespace onnx_fp8::cuda
