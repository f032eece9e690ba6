// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/cublaslt_numbers.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <array>
#include <bit>
#include <cmath>

namespace onnx_fp8::emulation {
namespace {

template <typename Fp8>
std::array<float, 256> Values() {
  std::array<float, 256> values;
  for (unsigned code = 0; code < 256; ++code) {
    Fp8 x;
    x.__x = static_cast<__nv_fp8_storage_t>(code);
    values[code] = static_cast<float>(x);
  }
  return values;
}

}  // namespace

float LoadFloat(const void* p, cudaDataType type, int64_t i) {
  static const std::array<float, 256> e4m3 = Values<__nv_fp8_e4m3>();
  static const std::array<float, 256> e5m2 = Values<__nv_fp8_e5m2>();
  switch (type) {
    case CUDA_R_32F:
      return static_cast<const float*>(p)[i];
    case CUDA_R_16BF:
      return __bfloat162float(static_cast<const __nv_bfloat16*>(p)[i]);
    case CUDA_R_16F:
      return __half2float(static_cast<const __half*>(p)[i]);
    case CUDA_R_8F_E4M3:
      return e4m3[static_cast<const uint8_t*>(p)[i]];
    default:
      return e5m2[static_cast<const uint8_t*>(p)[i]];
  }
}

void StoreFloat(void* p, cudaDataType type, int64_t i, float value) {
  auto fp8 = [&](__nv_fp8_interpretation_t format) {
    static_cast<uint8_t*>(p)[i] =
        __nv_cvt_float_to_fp8(value, __NV_SATFINITE, format);
  };
  switch (type) {
    case CUDA_R_32F:
      static_cast<float*>(p)[i] = value;
      break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(p)[i] = __float2bfloat16(value);
      break;
    case CUDA_R_16F:
      static_cast<__half*>(p)[i] = __float2half(value);
      break;
    case CUDA_R_8F_E4M3:
      fp8(__NV_E4M3);
      break;
    default:
      fp8(__NV_E5M2);
  }
}

float RoundToTf32(float value) {
  if (!std::isfinite(value)) return value;
  constexpr uint32_t kDropped = 13;  // bits
  uint32_t bits = std::bit_cast<uint32_t>(value) + (1u << (kDropped - 1));
  return std::bit_cast<float>(bits >> kDropped << kDropped);
}

}  // namespace onnx_fp8::emulation
