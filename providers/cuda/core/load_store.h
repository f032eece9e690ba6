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

// Elements i … i+3. REQUIRES: i is a multiple of 4; the tensor has them all.
__device__ inline void Load4(FloatsIn x, int64_t i, float (&out)[4]) {
  if (x.kept == Kept::kFloat) {
    float4 v =
        *reinterpret_cast<const float4*>(static_cast<const float*>(x.data) + i);
    out[0] = v.x, out[1] = v.y, out[2] = v.z, out[3] = v.w;
    return;
  }
  uint2 v =
      *reinterpret_cast<const uint2*>(static_cast<const uint16_t*>(x.data) + i);
  const uint32_t bits[4] = {v.x & 0xFFFFu, v.x >> 16, v.y & 0xFFFFu, v.y >> 16};
  for (int k = 0; k < 4; ++k) {
    auto half = static_cast<uint16_t>(bits[k]);
    out[k] = x.kept == Kept::kBFloat16 ? __uint_as_float(bits[k] << 16)
                                       : __half2float(__ushort_as_half(half));
  }
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
