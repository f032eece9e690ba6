// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/fp8/code_writer.h"

#include <algorithm>

#include "providers/cpu/fp8/quantize.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/narrow_floats.h"

namespace onnx_fp8 {
namespace {

// Calls fn(x, begin, n) for short pieces, rounded to the dtype.
template <typename Fn>
void ForRounded(DType to, const float* x, int64_t begin, int64_t n, Fn fn) {
  constexpr int64_t kPiece = 512;
  if (to == DType::kFloat) return fn(x, begin, n);
  float rounded[kPiece];
  for (int64_t i = 0; i < n; i += kPiece) {
    const int64_t count = std::min(kPiece, n - i);
    RoundFloats(to, x + i, rounded, count);
    fn(rounded, begin + i, count);
  }
}

}  // namespace

void CodeWriter::Add(const float* x, int64_t begin, int64_t n) {
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  const auto encode = EncoderOf(format_.to);
  Amax seen;
  ForRounded(format_.round_to, x, begin, n,
             [&](const float* y, int64_t at, int64_t count) {
               seen.Add(kernels.amax(y, count));
               if (knows_scale()) encode(y, factor_, codes_ + at, count);
             });
  std::lock_guard<std::mutex> lock(mutex_);
  amax_.Add(seen);
}

void CodeWriter::SetOwnScale() {
  onnx_fp8::SetOwnScale(format_.q_max, amax_.finite, &factor_, &scale_);
}

void CodeWriter::Encode(const float* x, int64_t begin, int64_t n) const {
  const auto encode = EncoderOf(format_.to);
  ForRounded(format_.round_to, x, begin, n,
             [&](const float* y, int64_t at, int64_t count) {
               encode(y, factor_, codes_ + at, count);
             });
}

float CodeWriter::amax() const { return ReportedAmax(amax_); }

}  // namespace onnx_fp8
