// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <mutex>

#include "onnx_fp8/dtype.h"
#include "providers/amax.h"

namespace onnx_fp8 {

// The format of the codes. The tensor may be rounded to `round_to` first.
struct CodeFormat {
  DType to;        // kE4M3, kE5M2
  DType round_to;  // kFloat: not rounded
  float q_max;
  float scale_in;  // 0: not yet known; the tensor's own scale counts
};

// The codes of a tensor that a kernel makes in pieces, with QuantizeWith's
// bits. Any threads may add pieces.
class CodeWriter {
 public:
  CodeWriter(const CodeFormat& format, void* codes)
      : format_(format),
        codes_(static_cast<uint8_t*>(codes)),
        factor_(1.0f / format.scale_in),
        scale_(format.scale_in) {}

  bool knows_scale() const { return scale_ != 0; }
  // Measures n elements from `begin` on, and writes their codes if the scale is
  // known.
  void Add(const float* x, int64_t begin, int64_t n);
  // Sets the scale from the amax of all elements, when all are added. Encode
  // must then be called for each of them.
  void SetOwnScale();
  void Encode(const float* x, int64_t begin, int64_t n) const;

  // The scale, and the amax of all elements that were added.
  float scale() const { return scale_; }
  float amax() const;

 private:
  CodeFormat format_;
  uint8_t* codes_;
  float factor_, scale_;
  Amax amax_;
  std::mutex mutex_;
};

}  // namespace onnx_fp8
