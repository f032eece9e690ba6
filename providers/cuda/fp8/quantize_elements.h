// SPDX-License-Identifier: Apache-2.0
//
// Element-wise ops whose results are also quantized, with scales that were
// given before. Traffic: each operand is read once. Codes, their transpose and
// floats are written once, if a node reads them; zeros of padding too. While a
// scale is not yet known, operands are read twice.
#pragma once

#include <cstdint>

#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/core/transpose_tile.h"

namespace onnx_fp8::cuda {

template <int kIn, int kOut>
struct QuantizedElements {
  FloatsIn in[kIn];
  Result out[kOut];
  // All elements as a matrix, whose last row may be shorter, and its codes.
  // to_columns is a multiple of 4.
  int64_t n;
  MatrixSizes sizes;
};

namespace {

// Four elements of a row of the matrix.
struct WordBounds {
  int64_t at, count;  // in the matrix
  int64_t left;       // codes, with zeros
  bool whole;         // can be loaded at once
};

template <int kIn, int kOut>
__device__ WordBounds BoundsOf(const QuantizedElements<kIn, kOut>& e,
                               int64_t row, int64_t column) {
  const MatrixSizes& m = e.sizes;
  int64_t at = row * m.columns + column, left = e.n - at, count = left;
  if (Pads(m)) {
    count = row < m.rows ? m.columns - column : 0;
    left = m.to_columns - column;
  }
  return {at, count, left, count >= kPerThread && m.columns % kPerThread == 0};
}

// y = f of each of four elements.
template <typename F, int kIn, int kOut>
__device__ void ComputeFour(const F& f, const float (&x)[kIn][kPerThread],
                            float (&y)[kOut][kPerThread]) {
  ONNX_FP8_UNROLL
  for (int k = 0; k < kPerThread; ++k) {
    float of_in[kIn], of_out[kOut];
    for (int i = 0; i < kIn; ++i) of_in[i] = x[i][k];
    f(of_in, of_out);
    for (int i = 0; i < kOut; ++i) y[i][k] = of_out[i];
  }
}

// Computes and stores the elements; `raw` are the operands of a whole word.
// Leaves in y the numbers that are quantized.
template <typename F, int kIn, int kOut>
__device__ void ComputeWord(const QuantizedElements<kIn, kOut>& e, const F& f,
                            const ResultWriter (&out)[kOut],
                            const WordBounds& bounds, const Vector (&raw)[kIn],
                            AmaxPart (&seen)[kOut],
                            float (&y)[kOut][kPerThread]) {
  const auto& [at, count, left, whole] = bounds;
  float x[kIn][kPerThread] = {};
  for (int i = 0; i < kIn; ++i) {
    if (whole) {
      ToFloats(e.in[i].storage, raw[i], x[i]);
      continue;
    }
    for (int k = 0; k < kPerThread; ++k) {
      if (k < count) x[i][k] = Load(e.in[i], at + k);
    }
  }
  ComputeFour(f, x, y);
  for (int i = 0; i < kOut; ++i) {
    if (whole) {
      Store4(out[i], at, y[i]);
      seen[i].Add4(y[i]);
      continue;
    }
    for (int k = 0; k < kPerThread; ++k) {
      if (k < count) seen[i].Add(y[i][k] = Store(out[i], at + k, y[i][k]));
    }
  }
}

// The same with the codes of four elements of the matrix, of which some may be
// zeros around it.
template <typename F, int kIn, int kOut>
__device__ void QuantizeWord(const QuantizedElements<kIn, kOut>& e, const F& f,
                             const ResultWriter (&out)[kOut], int64_t row,
                             int64_t column, const Vector (&raw)[kIn],
                             AmaxPart (&seen)[kOut], uint32_t (&codes)[kOut]) {
  const WordBounds bounds = BoundsOf(e, row, column);
  float y[kOut][kPerThread];
  ComputeWord(e, f, out, bounds, raw, seen, y);
  int inside =
      static_cast<int>(bounds.count < kPerThread ? bounds.count : kPerThread);
  for (int i = 0; i < kOut; ++i) {
    if (!out[i].HasCodes()) continue;
    codes[i] = CodesOf(out[i], inside, y[i]);
    StoreCodes(out[i], row * e.sizes.to_columns + column, bounds.left,
               codes[i]);
  }
}

// QuantizeWord's bits for the vector at element `at` of tensors that are whole.
template <typename F, int kIn, int kOut>
__device__ void QuantizeVector(const F& f, const ResultWriter (&out)[kOut],
                               int64_t at, const Vector (&raw)[kIn],
                               AmaxPart (&seen)[kOut],
                               uint32_t (&codes)[kOut]) {
  constexpr Storage kStorage = Storage::kBFloat16;
  float x[kIn][kPerThread], y[kOut][kPerThread];
  for (int i = 0; i < kIn; ++i) ToFloats(kStorage, raw[i], x[i]);
  ComputeFour(f, x, y);
  ONNX_FP8_UNROLL
  for (int i = 0; i < kOut; ++i) {
    if (out[i].HasFloats()) {
      Store4(FloatsOut{out[i].r->y.data, kStorage}, at, y[i]);
    } else {
      Round4(kStorage, y[i]);
    }
    if (out[i].Amax()) seen[i].Add4(y[i]);
    if (!out[i].HasCodes()) continue;
    codes[i] = out[i].Codes(y[i]);
    *reinterpret_cast<uint32_t*>(out[i].r->q + at) = codes[i];
  }
}

// Returns whether all rows consist of whole vectors, the codes have no padding,
// and bfloat16 is the dtype of all tensors and of the numbers that are encoded.
template <int kIn, int kOut>
bool IsWhole(const QuantizedElements<kIn, kOut>& e) {
  bool narrow = AreBFloat16(e.in);
  for (const Result& r : e.out) {
    narrow = narrow && AreBFloat16({AsOperand(r.y)}) &&
             r.rounded == Storage::kBFloat16;
  }
  return narrow && e.n % kPerThread == 0 && e.sizes.columns % kPerThread == 0 &&
         !Pads(e.sizes);
}

// kWhole: IsWhole(e). There is less to ask for each vector then.
template <bool kWhole, typename F, int kIn, int kOut>
__global__ void __launch_bounds__(kTransposeThreads, 1)
    QuantizeElementsKernel(QuantizedElements<kIn, kOut> e, F f) {
  bool done = true, writes = true;
  ONNX_FP8_UNROLL
  for (int i = 0; i < kOut; ++i) {
    done = IsDone(e.out[i]) && done;
    writes = writes && MayWrite(e.out[i]);
  }
  if (done) return;
  ResultWriter out[kOut];
  ONNX_FP8_UNROLL
  for (int i = 0; i < kOut; ++i) out[i] = ResultWriter(e.out[i], writes);
  AmaxPart seen[kOut];
  const MatrixSizes& m = e.sizes;
  Vector raw[kCodes][kIn];
  TransposeTilesOf<kOut>(
      blockIdx.x, blockIdx.y,
      [&](int i, int64_t row, int64_t column) {
        if (row >= m.rows || column >= m.columns) return;
        if constexpr (kWhole) {
          int64_t at = row * m.columns + column;
          if (at >= e.n) return;
          ONNX_FP8_UNROLL
          for (int j = 0; j < kIn; ++j) {
            raw[i][j] = LoadVector4(Known<true>(e.in[j]), at);
          }
          return;
        }
        const WordBounds bounds = BoundsOf(e, row, column);
        if (!bounds.whole) return;
        ONNX_FP8_UNROLL
        for (int j = 0; j < kIn; ++j)
          raw[i][j] = LoadVector4(e.in[j], bounds.at);
      },
      [&](int i, int64_t row, int64_t column, uint32_t(&codes)[kOut]) {
        for (int j = 0; j < kOut; ++j) codes[j] = 0;
        if constexpr (kWhole) {
          int64_t at = row * m.columns + column;
          if (row >= m.rows || column >= m.columns || at >= e.n) return;
          return QuantizeVector(f, out, at, raw[i], seen, codes);
        }
        if (row >= m.to_rows || column >= m.to_columns) return;
        QuantizeWord(e, f, out, row, column, raw[i], seen, codes);
      },
      [&](int i, int64_t column, int64_t row, uint32_t codes) {
        uint8_t* to = e.out[i].q_transposed;
        if (!to || !writes) return;
        if (row >= m.to_rows || column >= m.to_columns) return;
        *reinterpret_cast<uint32_t*>(to + column * m.to_rows + row) = codes;
      });
  for (int i = 0; i < kOut; ++i) seen[i].AddOfBlock(out[i].Amax());
}

}  // namespace

// Operands 0 … kIn-1 and results 0 … kOut-1 of the node, all of one shape; f is
// as in ForElements. Errors: MapElements'; ResultTo's.
template <typename F, int kIn, int kOut>
void QuantizeElements(KernelContext& ctx, F f) {
  const Shape shape = Operand(ctx, 0).shape();
  QuantizedElements<kIn, kOut> e;
  e.n = NumElements(shape);
  for (int i = 0; i < kIn; ++i) {
    auto k = static_cast<size_t>(i);
    CheckOperand(ctx, k, DType::kFloat, shape);
    e.in[i] = FloatsOf(ctx, k);
  }
  bool transposed = false;
  for (int i = 0; i < kOut; ++i) {
    e.out[i] = ResultTo(ctx, static_cast<size_t>(i), shape);
    transposed = transposed || e.out[i].q_transposed;
  }
  if (e.n == 0) {
    for (const Result& r : e.out) Finish(ctx, r);
    return;
  }
  e.sizes = e.out[0].sizes;
  if (!transposed && !Pads(e.sizes)) {
    // Any matrix will do. The grid bounds its rows.
    constexpr int64_t kMostElements = int64_t{1} << 29;
    int64_t columns = kTransposeSide * DivideUp(e.n, kMostElements);
    int64_t rows = DivideUp(e.n, columns);
    e.sizes = {rows, columns, rows, columns};
  }
  auto* kernel = IsWhole(e) ? QuantizeElementsKernel<true, F, kIn, kOut>
                            : QuantizeElementsKernel<false, F, kIn, kOut>;
  for (bool again : {false, true}) {
    for (Result& r : e.out) r.again = again;
    Launch(kernel, TransposeTiles(e.sizes.to_rows, e.sizes.to_columns),
           kTransposeThreads, 0, QueueOf(ctx).stream(), e, f);
  }
}

}  // namespace onnx_fp8::cuda
