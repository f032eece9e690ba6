// SPDX-License-Identifier: Apache-2.0
// Loops of kernels that work element by element.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>

#include "providers/cpu/amax_meter.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {

// y[i] = f(x[i]) on all threads, vectorized; f throws nothing.
template <typename X, typename Y, typename F>
void Map(const X* x, Y* y, int64_t n, F f) {
  ParallelFor(n, kGrain, [=](int64_t begin, int64_t end) {
    OnBestIsa([=] {
      ONNX_FP8_IVDEP  // y is x or does not overlap it
      for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
    });
  });
}

// Elements that are widened, computed, measured and rounded at a time: they
// stay in a first-level cache.
inline constexpr int64_t kStoredBlock = 1024;

// Cuts the operands `x` and the results `y`, which all have the same size, into
// blocks, and calls run(in, out, n) for each block, on all threads. in[i] and
// out[i] point at the block's n elements of x[i] and y[i]. Operands that are
// kept in 16 bits are widened before the call, and results are rounded after
// it. y[i] is output i of ctx; its amax is measured.
template <typename T, size_t kIn, size_t kOut, typename F>
void ForBlocks(KernelContext& ctx, const Tensor (&x)[kIn], Tensor (&y)[kOut],
               F run) {
  std::array<StoredIn<T>, kIn> from;
  std::array<StoredOut<T>, kOut> to;
  std::array<std::optional<AmaxMeter>, kOut> meters;
  bool whole = true;  // no block has to stay in the cache
  for (size_t i = 0; i < kIn; ++i) {
    from[i] = StoredIn<T>(x[i]);
    whole &= !from[i].narrow();
  }
  for (size_t i = 0; i < kOut; ++i) {
    to[i] = StoredOut<T>(y[i]);
    meters[i].emplace(ctx, i);
    whole &= !to[i].narrow() && !meters[i]->on();
  }
  ParallelFor(x[0].size(), kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) T wide[kIn + kOut][kStoredBlock];
    std::array<const T*, kIn> in;
    std::array<T*, kOut> out;
    std::array<std::optional<AmaxMeter::Part>, kOut> parts;
    for (size_t i = 0; i < kOut; ++i) parts[i].emplace(*meters[i]);
    int64_t step = whole ? end - begin : kStoredBlock;
    for (int64_t at = begin; at < end; at += step) {
      int64_t n = std::min(step, end - at);
      for (size_t i = 0; i < kIn; ++i) in[i] = from[i].Read(at, n, wide[i]);
      for (size_t i = 0; i < kOut; ++i) out[i] = to[i].At(at, wide[kIn + i]);
      run(in, out, n);
      for (size_t i = 0; i < kOut; ++i) {
        parts[i]->Add(out[i], n);
        to[i].Write(at, n, out[i]);
      }
    }
  });
}

// Output 0 = f(x[i], y[i]); f is vectorized and throws nothing.
template <typename T, typename F>
void Map2(KernelContext& ctx, const Tensor& x, const Tensor& y, Tensor& z,
          F f) {
  const Tensor in[] = {x, y};
  Tensor out[] = {z};
  ForBlocks<T>(ctx, in, out, [=](const auto& from, const auto& to, int64_t n) {
    const T *a = from[0], *b = from[1];
    T* c = to[0];
    OnBestIsa([=] {
      ONNX_FP8_IVDEP  // c is a or b or does not overlap them
      for (int64_t i = 0; i < n; ++i) c[i] = f(a[i], b[i]);
    });
  });
}

// The same for functions that can't be vectorized: compiled once.
template <typename X, typename Y, typename F>
void MapScalar(const X* x, Y* y, int64_t n, F f) {
  ParallelFor(n, kGrain, [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
  });
}

// Output 0 = f(input 0) for float and double; f is generic.
template <typename F>
void FloatMap(KernelContext& ctx, F f) {
  const Tensor& x = Operand(ctx, 0);
  DType dtype = ComputedAs(x);
  Tensor y = StoredResult(ctx, 0, dtype, x.shape());
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    if constexpr (sizeof(T) == sizeof(float)) {
      const Tensor in[] = {x};
      Tensor out[] = {y};
      ForBlocks<T>(ctx, in, out,
                   [=](const auto& from, const auto& to, int64_t n) {
                     const T* a = from[0];
                     T* b = to[0];
                     OnBestIsa([=] {
                       ONNX_FP8_IVDEP  // b is a or does not overlap it
                       for (int64_t i = 0; i < n; ++i) b[i] = f(a[i]);
                     });
                   });
    } else {
      MapScalar(x.data<T>(), y.data<T>(), x.size(), f);
    }
  });
}

}  // namespace onnx_fp8
