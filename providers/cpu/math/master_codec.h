// SPDX-License-Identifier: Apache-2.0
//
// A parameter as the state keeps it in bfloat16 (`master`), and as floats.
#pragma once

#include <cstdint>

#include "base/stochastic_rounding.h"
#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// A parameter, or a part of one.
struct MasterCodec {
  // kInt8 or kInt16; kUndefined: there is none, and the rounding draws.
  DType correction = DType::kUndefined;
  const uint16_t* in = nullptr;  // the old bfloat16s
  uint16_t* out = nullptr;       // the new ones, maybe in the same memory
  const void* correction_in = nullptr;
  void* correction_out = nullptr;
  // The draws' places and key.
  ElementPlaces places = {};
  uint32_t key = 0;

  // n elements from `begin` on.
  void Decode(int64_t begin, int64_t n, float* x) const;
  void Encode(const float* x, int64_t begin, int64_t n) const;
};

}  // namespace onnx_fp8
