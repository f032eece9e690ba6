// SPDX-License-Identifier: Apache-2.0
//
// Moments as the state keeps them, and as floats.
#pragma once

#include <cstdint>
#include <functional>

#include "base/moment_codes.h"
#include "base/stochastic_rounding.h"
#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// A moment of one tensor, or of a part of one.
struct MomentCodec {
  DType dtype;     // kBFloat16 or kE4M3
  bool is_square;  // a mean of squares: its rounding draws
  MomentBlocks blocks;
  const void* in;  // the old moment
  void* out;       // the new one, which may lie in the same memory
  // Codes have a scale for each block.
  const float* scales_in = nullptr;
  float* scales_out = nullptr;
  // The draws' places and key.
  ElementPlaces places = {};
  uint32_t key = 0;

  // The old moment of n elements from `begin` on. REQUIRES: whole blocks, at
  // most kMomentPiece elements. So does Encode.
  void Decode(int64_t begin, int64_t n, float* x) const;
  void Encode(const float* x, int64_t begin, int64_t n) const;
};

// Elements that are decoded at a time, at most.
inline constexpr int64_t kMomentPiece = 4 * kMomentBlock;

// Calls fn(begin, n) for pieces of whole blocks that cover all of them, on all
// threads.
void ForMomentPieces(const MomentBlocks& blocks,
                     const std::function<void(int64_t, int64_t)>& fn);

}  // namespace onnx_fp8
