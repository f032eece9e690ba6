// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/narrow_floats.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kBlock = 512;  // elements that RoundFloats converts at a time

}  // namespace

void WidenFloats(DType from, const void* x, float* y, int64_t n) {
  assert(IsHalf(from));
  auto* in = static_cast<const uint16_t*>(x);
  if (from == DType::kBFloat16) {
    OnBestIsa([=] {
      for (int64_t i = 0; i < n; ++i) {
        y[i] = std::bit_cast<float>(WidenBFloat16(in[i]));
      }
    });
  } else {
    OnBestIsa([=] {
      for (int64_t i = 0; i < n; ++i) {
        y[i] = std::bit_cast<float>(WidenFloat16(in[i]));
      }
    });
  }
}

void NarrowFloats(DType to, const float* x, void* y, int64_t n) {
  assert(IsHalf(to));
  auto* out = static_cast<uint16_t*>(y);
  if (to == DType::kBFloat16) {
    OnBestIsa([=] {
      for (int64_t i = 0; i < n; ++i) {
        out[i] = NarrowBFloat16(std::bit_cast<uint32_t>(x[i]));
      }
    });
  } else {
    OnBestIsa([=] {
      for (int64_t i = 0; i < n; ++i) {
        out[i] = NarrowFloat16(std::bit_cast<uint32_t>(x[i]));
      }
    });
  }
}

void RoundFloats(DType to, const float* x, float* y, int64_t n) {
  uint16_t narrow[kBlock];
  for (int64_t i = 0; i < n; i += kBlock) {
    int64_t count = std::min(kBlock, n - i);
    NarrowFloats(to, x + i, narrow, count);
    WidenFloats(to, narrow, y + i, count);
  }
}

}  // namespace onnx_fp8
