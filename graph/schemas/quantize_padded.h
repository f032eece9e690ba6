// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace onnx_fp8 {

// GPUs multiply FP8 matrices whose sizes are multiples of this number.
inline constexpr int64_t kFp8Unit = 16;

// The size as the ops of quantize_padded.cc write it. REQUIRES: size >= 0.
constexpr int64_t PaddedSize(int64_t size) {
  return (size + kFp8Unit - 1) / kFp8Unit * kFp8Unit;
}

}  // namespace onnx_fp8
