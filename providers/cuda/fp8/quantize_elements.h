// SPDX-License-Identifier: Apache-2.0
//
// Element-wise ops whose results are also quantized, with scales that were
// given before. Traffic: each operand is read once; the codes, their transpose
// and the floats are written once, each if it is read. While a scale is not yet
// known, operands are read twice.
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
  // All elements as a matrix, whose last row may be shorter. `columns` is a
  // multiple of 4.
  int64_t n, columns;
};

namespace {

// Computes and stores up to four elements, and returns the codes of four.
template <typename F, int kIn, int kOut>
__device__ void QuantizeWord(const QuantizedElements<kIn, kOut>& e, const F& f,
                             const ResultWriter (&out)[kOut], int64_t at,
                             AmaxPart (&seen)[kOut], uint32_t (&codes)[kOut]) {
  float x[kIn][kPerThread], y[kOut][kPerThread];
  auto compute = [&](int k) {
    float of_in[kIn], of_out[kOut];
    for (int i = 0; i < kIn; ++i) of_in[i] = x[i][k];
    f(of_in, of_out);
    for (int i = 0; i < kOut; ++i) y[i][k] = of_out[i];
  };
  if (at + kPerThread <= e.n) {
    for (int i = 0; i < kIn; ++i) Load4(e.in[i], at, x[i]);
    for (int k = 0; k < kPerThread; ++k) compute(k);
    for (int i = 0; i < kOut; ++i) {
      codes[i] = Store4(out[i], at, y[i]);
      for (float v : y[i]) seen[i].Add(v);
    }
  } else {
    for (int64_t j = at; j < e.n; ++j) {
      for (int i = 0; i < kIn; ++i) x[i][0] = Load(e.in[i], j);
      compute(0);
      for (int i = 0; i < kOut; ++i) seen[i].Add(Store(out[i], j, y[i][0]));
    }
  }
}

template <typename F, int kIn, int kOut>
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
  int64_t rows = DivideUp(e.n, e.columns);
  TransposeTilesOf<kOut>(
      blockIdx.x, blockIdx.y,
      [&](int64_t row, int64_t column, uint32_t(&codes)[kOut]) {
        for (int i = 0; i < kOut; ++i) codes[i] = 0;
        if (row >= rows || column >= e.columns) return;
        QuantizeWord(e, f, out, row * e.columns + column, seen, codes);
      },
      [&](int i, int64_t column, int64_t row, uint32_t codes) {
        uint8_t* to = e.out[i].q_transposed;
        if (!to || !writes) return;
        if (row >= rows || column >= e.columns) return;
        *reinterpret_cast<uint32_t*>(to + column * rows + row) = codes;
      });
  for (int i = 0; i < kOut; ++i) seen[i].AddTo(out[i].Amax());
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
  // Without transposes any matrix will do. The grid bounds its rows.
  constexpr int64_t kMostElements = int64_t{1} << 29;
  e.columns =
      transposed ? shape.back() : kTransposeSide * DivideUp(e.n, kMostElements);
  if (e.n == 0) {
    for (const Result& r : e.out) Finish(ctx, r);
    return;
  }
  for (bool again : {false, true}) {
    for (Result& r : e.out) r.again = again;
    Launch(QuantizeElementsKernel<F, kIn, kOut>,
           TransposeTiles(DivideUp(e.n, e.columns), e.columns),
           kTransposeThreads, 0, QueueOf(ctx).stream(), e, f);
  }
}

}  // namespace onnx_fp8::cuda
