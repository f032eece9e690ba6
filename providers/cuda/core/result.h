// SPDX-License-Identifier: Apache-2.0
//
// A float result as a kernel writes it: as floats, as FP8 codes whose scale was
// given before, or as both. The bits equal the result of a kernel that reads
// the floats and quantizes them. A given scale of 0 means "not yet": the scale
// is then the result's own. A kernel that quantizes is started twice. The first
// start writes and measures the result, but only measures it if there is no
// scale yet. The second start writes the quantizer's scale and amax, which are
// complete then, and the result if the first one did not. So results may lie
// where operands do. A kernel that works on rows, whose scales are their own,
// is started once.
#pragma once

#include <cstdint>

#include "graph/schemas/quantize_padded.h"
#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/block_factor.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/load_store.h"

namespace onnx_fp8::cuda {

// A result as a matrix, all axes but the last joined, and the matrix of its
// codes.
struct MatrixSizes {
  int64_t rows, columns, to_rows, to_columns;
};

// Whether there are zeros around the codes.
__host__ __device__ inline bool Pads(const MatrixSizes& m) {
  return m.to_rows != m.rows || m.to_columns != m.columns;
}

// The sizes for n elements, whose codes may have zeros up to whole units.
__host__ __device__ inline MatrixSizes SizesOf(int64_t n, int64_t columns,
                                               bool pads) {
  int64_t rows = columns > 0 ? n / columns : 0;
  if (!pads) return {rows, columns, rows, columns};
  return {rows, columns, PaddedSize(rows), PaddedSize(columns)};
}

// A kernel's operand.
struct Result {
  FloatsOut y;
  DeviceAmax* amax = nullptr;         // of y; null: nobody asks for it
  const float* scale_in = nullptr;    // null: none is given
  Storage rounded = Storage::kFloat;  // as it is quantized
  float q_max = 0;
  bool e4m3 = false;
  bool again = false;  // it is the kernel's second start
  uint8_t *q = nullptr, *q_transposed = nullptr;
  bool turns = false;  // the kernel itself writes q_transposed
  MatrixSizes sizes = {};
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
  // Kernels that work on rows use these two. An element at place i has its code
  // at place i + shift. So many zeros follow the row's codes.
  int64_t shift;
  int zeros;

  ResultWriter() = default;
  __device__ ResultWriter(const Result& result, bool may_write)
      : r(&result), factor(1), writes(may_write), shift(0), zeros(0) {
    if (!r->scale_in || !writes) return;
    float given = *r->scale_in;
    factor = given == 0 ? OwnFactor(r->q_max, r->amax) : 1.0f / given;
  }

  __device__ bool HasFloats() const { return r->y.data && writes; }
  __device__ bool HasCodes() const { return r->q && writes; }
  // Null if nobody asks for the amax, or it is complete.
  __device__ DeviceAmax* Amax() const { return r->again ? nullptr : r->amax; }
  // The codes of four numbers. The lowest byte has the code of x[0].
  __device__ uint32_t Codes(const float (&x)[4]) const {
    return EncodeProducts(r->e4m3, x, factor);
  }
  // Elements that are stored next belong to this row of n, which has to_n
  // codes. A row that does not exist has zeros only.
  __device__ void SetRow(int64_t row, int64_t n, int64_t to_n, bool exists) {
    shift = row * (to_n - n);
    zeros = static_cast<int>(exists ? to_n - n : to_n);
  }
};

// As for FloatsOut.
__device__ inline bool IsRead(const FloatsOut& y) { return y.data; }
__device__ inline bool IsRead(const ResultWriter& w) {
  return w.r->y.data || w.r->q;
}

// Stores one element as a float, and returns the number that is quantized.
__device__ inline float Store(const ResultWriter& w, int64_t i, float x) {
  if (w.HasFloats()) x = Store(w.r->y, i, x);
  return Rounded(w.r->rounded, x);
}

// The same for four elements, in place.
__device__ inline void Store4(const ResultWriter& w, int64_t i, float (&x)[4]) {
  if (w.HasFloats()) Store4(w.r->y, i, x);
  Round4(w.r->rounded, x);
}

// The codes of the first `count` of four numbers as one word, with the code of
// x[0] in the lowest byte, and zeros behind them.
__device__ inline uint32_t CodesOf(const ResultWriter& w, int count,
                                   const float (&x)[4]) {
  uint32_t codes = w.Codes(x);
  if (count >= 4) return codes;
  return count > 0 ? codes & ((1u << 8 * count) - 1) : 0;
}

// Stores four codes at number `at`, or `left` if there are fewer.
__device__ inline void StoreCodes(const ResultWriter& w, int64_t at,
                                  int64_t left, uint32_t codes) {
  uint8_t* to = w.r->q + at;
  if (left >= 4 && at % 4 == 0) {
    *reinterpret_cast<uint32_t*>(to) = codes;
    return;
  }
  for (int k = 0; k < 4; ++k) {
    if (k < left) to[k] = static_cast<uint8_t>(codes >> 8 * k);
  }
}

// ---- on the host

// Operand i, on the device. Errors: it is not one float.
const float* GivenScaleIn(const KernelContext& ctx, size_t i);

// Result i, if anybody reads it: one float.
float* ScalarResult(KernelContext& ctx, size_t i);

// Result i, the transpose of codes of those sizes. Errors: sizes that are no
// multiples of 4.
uint8_t* TransposedTo(KernelContext& ctx, size_t i, DType to,
                      const MatrixSizes& sizes);

// Result i of the node, of that shape, with the codes that an op of
// graph/schemas/fused_quantize.h makes of it. The amax of the latter is one of
// the kernel's own_amaxes. Errors:
// attributes and operands of the quantizer that do not fit.
Result ResultTo(KernelContext& ctx, size_t i, const Shape& shape);

// Writes the scalars of a result that no second start finishes.
void Finish(const KernelContext& ctx, const Result& r);

// Writes the transpose of the codes, if it is wanted and the kernel has not
// written it. Traffic: the codes are read once, the transpose is written once.
void TransposeCodes(const KernelContext& ctx, const Result& r);

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
  TransposeCodes(ctx, r);
}

}  // namespace onnx_fp8::cuda
