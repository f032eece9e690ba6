// SPDX-License-Identifier: Apache-2.0
//
// The factor and the scale of a block of elements, from the block's amax. Their
// bits are the CPU's.
#pragma once

#include <cstdint>

#include "providers/cuda/core/check_quantize.h"
#include "providers/cuda/core/device.h"

namespace onnx_fp8::cuda {

// As the attributes of QuantizeBlock say.
struct BlockFormat {
  float q_max = 0, largest_power = 0;
  int pow2 = 0;
  bool scales_are_e8m0 = false;  // else floats
};

// REQUIRES: x positive and normal.
__device__ inline float PowerOfTwoBelow(float x) {
  return __uint_as_float(__float_as_uint(x) & 0x7F800000u);
}

__device__ inline float BlockFactor(const BlockFormat& f, float amax) {
  float v = fmaxf(amax, 1e-12f);
  if (f.pow2 == 2) return 1.0f / (PowerOfTwoBelow(v) / f.largest_power);
  double ratio = static_cast<double>(f.q_max) / v;
  ratio = ratio < 0x1p-126 ? 0x1p-126 : ratio > 0x1p126 ? 0x1p126 : ratio;
  auto exact = static_cast<float>(ratio);
  return f.pow2 == 1 ? PowerOfTwoBelow(exact) : exact;
}

// scales[i], for a block's factor.
__device__ inline void StoreScale(const BlockFormat& f, void* scales, int64_t i,
                                  float factor) {
  float scale = 1.0f / factor;
  if (f.scales_are_e8m0) {  // a power of two: its exponent
    static_cast<uint8_t*>(scales)[i] =
        static_cast<uint8_t>(__float_as_uint(scale) >> 23);
  } else {
    static_cast<float*>(scales)[i] = scale;
  }
}

inline DType ScaleDType(const BlockFormat& f) {
  return f.scales_are_e8m0 ? DType::kE8M0 : DType::kFloat;
}

// Errors: CheckQuantize's; attributes that do not name a rounding of scales and
// a dtype that has such scales.
inline BlockFormat BlockFormatOf(const KernelContext& ctx) {
  CheckQuantize(ctx);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  auto scale_to = static_cast<DType>(ctx.Int("scale_to", 0));
  BlockFormat f = {.q_max = ctx.Float("q_max", 0.0f),
                   .largest_power = to == DType::kE4M3 ? 0x1p8f : 0x1p15f,
                   .pow2 = static_cast<int>(ctx.Int("pow2", -1)),
                   .scales_are_e8m0 = scale_to == DType::kE8M0};
  Check(f.pow2 >= 0 && f.pow2 <= 2, "[", ctx.Where(),
        "] expected pow2 of 0, 1 or 2, got ", ctx.Int("pow2", -1));
  Check(scale_to == DType::kFloat || (f.scales_are_e8m0 && f.pow2 != 0), "[",
        ctx.Where(), "] expected scale_to of 1, or of 24 with pow2, got ",
        ctx.Int("scale_to", 0));
  return f;
}

}  // namespace onnx_fp8::cuda
