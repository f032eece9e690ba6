// SPDX-License-Identifier: Apache-2.0
//
// A float result as a kernel writes it: as floats, as FP8 codes whose scale was
// given before, or as both. The bits are those of a kernel that reads the
// floats and quantizes them. A given scale of 0 means "not yet": the scale is
// then the result's own. A kernel that quantizes is started twice. The first
// start writes and measures the result, but only measures it if there is no
// scale yet. The second start writes the quantizer's scale and amax, which are
// complete then, and the result if the first one did not. So results may lie
// where operands do. A kernel that works on rows, whose scales are their own,
// is started once.
#pragma once

#include <cstdint>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/block_factor.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/load_store.h"

namespace onnx_fp8::cuda {

// A kernel's operand.
struct Result {
  FloatsOut y;
  DeviceAmax* amax = nullptr;       // of y; null: nobody asks for it
  const float* scale_in = nullptr;  // null: none is given
  Kept rounded = Kept::kFloat;      // as it is quantized
  float q_max = 0;
  bool e4m3 = false;
  bool again = false;  // it is the kernel's second start
  uint8_t *q = nullptr, *q_transposed = nullptr;
  float *scale_out = nullptr, *amax_out = nullptr;  // the quantizer's
  void* row_scales = nullptr;  // null: rows have no scales of their own
  BlockFormat rows;
};

// float(q_max / max(amax, 1e-12)), divided in double.
__device__ inline float FactorOfAmax(float q_max, float amax) {
  return static_cast<float>(static_cast<double>(q_max) / fmaxf(amax, 1e-12f));
}

__device__ inline float OwnFactor(float q_max, const DeviceAmax* amax) {
  return FactorOfAmax(q_max, __uint_as_float(amax->finite));
}

// +Inf if any element is NaN or infinite.
__device__ inline float AmaxIn(const DeviceAmax& amax) {
  return amax.non_finite ? __uint_as_float(0x7F800000u)
                         : __uint_as_float(amax.finite);
}

__device__ inline bool IsScaleKnown(const Result& r) {
  return !r.scale_in || *r.scale_in != 0;
}

// REQUIRES: the amax is complete.
__device__ inline void WriteScalars(const Result& r) {
  if (r.scale_out) {
    float given = *r.scale_in;
    *r.scale_out = given == 0 ? 1.0f / OwnFactor(r.q_max, r.amax) : given;
  }
  if (r.amax_out) *r.amax_out = AmaxIn(*r.amax);
}

// Whether the result is written already. The first thread of the second start
// writes the scalars.
__device__ inline bool IsDone(const Result& r) {
  if (!r.again) return false;
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) WriteScalars(r);
  return IsScaleKnown(r);
}

// Whether this start of the kernel may write the result; else it measures it.
__device__ inline bool MayWrite(const Result& r) {
  return r.again || IsScaleKnown(r);
}

// A result in a kernel that writes it. Most of it stays where the kernel's
// operands are, so it takes few registers.
struct ResultWriter {
  const Result* r;  // the kernel's operand
  float factor;
  bool writes;  // else it only measures

  ResultWriter() = default;
  __device__ ResultWriter(const Result& result, bool may_write)
      : r(&result), factor(1), writes(may_write) {
    if (!r->scale_in || !writes) return;
    float given = *r->scale_in;
    factor = given == 0 ? OwnFactor(r->q_max, r->amax) : 1.0f / given;
  }

  __device__ bool HasFloats() const { return r->y.data && writes; }
  __device__ bool HasCodes() const { return r->q && writes; }
  // Null if nobody asks for the amax, or it is complete.
  __device__ DeviceAmax* Amax() const { return r->again ? nullptr : r->amax; }
  __device__ uint32_t Code(float x) const {
    return r->e4m3 ? Encode<true>(x * factor) : Encode<false>(x * factor);
  }
};

// As for FloatsOut.
__device__ inline bool IsRead(const FloatsOut& y) { return y.data; }
__device__ inline bool IsRead(const ResultWriter& w) {
  return w.r->y.data || w.r->q;
}

// Stores one element, and returns the number that is quantized.
__device__ inline float Store(const ResultWriter& w, int64_t i, float x) {
  if (w.HasFloats()) x = Store(w.r->y, i, x);
  x = Rounded(w.r->rounded, x);
  if (w.HasCodes()) w.r->q[i] = static_cast<uint8_t>(w.Code(x));
  return x;
}

// Stores four elements, and leaves in x the numbers that are quantized. Returns
// their codes as one word, with the code of x[0]
// in the lowest byte, or 0 if the result has no codes.
__device__ inline uint32_t Store4(const ResultWriter& w, int64_t i,
                                  float (&x)[4]) {
  if (w.HasFloats()) Store4(w.r->y, i, x);
  ONNX_FP8_UNROLL
  for (int k = 0; k < 4; ++k) x[k] = Rounded(w.r->rounded, x[k]);
  if (!w.HasCodes()) return 0;
  uint32_t codes = 0;
  ONNX_FP8_UNROLL
  for (int k = 0; k < 4; ++k) codes |= w.Code(x[k]) << 8 * k;
  *reinterpret_cast<uint32_t*>(w.r->q + i) = codes;
  return codes;
}

// ---- on the host

// Operand i, on the device. Errors: it is not one float.
const float* GivenScaleIn(const KernelContext& ctx, size_t i);

// Result i, if anybody reads it: one float.
float* ScalarResult(KernelContext& ctx, size_t i);

// Result i, the transpose of a matrix of codes that has that shape, with all
// axes but the last joined. Errors: sizes that are no multiples of 4.
uint8_t* TransposedTo(KernelContext& ctx, size_t i, DType to,
                      const Shape& shape);

// Result i of the node, of that shape, with the codes that an op of
// graph/schemas/fused_quantize.h makes of it. The amax of the latter is one of
// the kernel's own_amaxes. Errors:
// attributes and operands of the quantizer that do not fit.
Result ResultTo(KernelContext& ctx, size_t i, const Shape& shape);

// Writes the scalars of a result that no second start finishes.
void Finish(const KernelContext& ctx, const Result& r);

// Writes the transpose of the codes, if it is wanted. Traffic: the codes are
// read once, the transpose is written once.
void TransposeCodes(const KernelContext& ctx, const Result& r,
                    const Shape& shape);

// Calls start(), which starts a kernel that writes `r`, of that shape, and does
// all else that its codes need.
template <typename Start>
void WriteResult(const KernelContext& ctx, const Shape& shape, Result& r,
                 const Start& start) {
  bool empty = NumElements(shape) == 0;
  if (!r.scale_in || !empty) start();
  if (!r.scale_in || empty) return Finish(ctx, r);
  r.again = true;
  start();
  TransposeCodes(ctx, r, shape);
}

}  // namespace onnx_fp8::cuda
