// SPDX-License-Identifier: Apache-2.0
// Loops of kernels that work element by element.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "providers/cpu/amax_meter.h"
#include "providers/cpu/arguments.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// y[i] = f(x[i]) on all threads, vectorized; f throws nothing.
template <typename X, typename Y, typename F>
void Map(const X* x, Y* y, int64_t n, F f) {
  ParallelFor(n, kGrain, [=](int64_t begin, int64_t end) {
    OnBestIsa([=] {
#pragma GCC ivdep  // y is x or does not overlap it
      for (int64_t i = begin; i < end; ++i) y[i] = f(x[i]);
    });
  });
}

// run(begin, end) for ranges that cover [0, n), on all threads; `meters` see
// each range of their results before it leaves the cache.
template <typename T, typename F>
void ForMeasuredRanges(int64_t n, std::initializer_list<AmaxMeter*> meters,
                       std::initializer_list<const T*> results, F run) {
  constexpr int64_t kCached = 4096;
  bool measures = std::ranges::any_of(meters, &AmaxMeter::on);
  ParallelFor(n, kGrain, [&](int64_t begin, int64_t end) {
    int64_t step = measures ? kCached : end - begin;
    for (int64_t at = begin; at < end; at += step) {
      int64_t last = std::min(at + step, end);
      run(at, last);
      auto result = results.begin();
      for (AmaxMeter* meter : meters) {
        AmaxMeter::Part(*meter).Add(*result++ + at, last - at);
      }
    }
  });
}

// z[i] = f(x[i], y[i]), output 0 of ctx.
template <typename T, typename F>
void Map2(KernelContext& ctx, const T* x, const T* y, T* z, int64_t n, F f) {
  AmaxMeter meter(ctx, 0);
  ForMeasuredRanges<T>(n, {&meter}, {z}, [=](int64_t begin, int64_t end) {
    OnBestIsa([=] {
#pragma GCC ivdep  // z is x or y or does not overlap them
      for (int64_t i = begin; i < end; ++i) z[i] = f(x[i], y[i]);
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
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    if constexpr (sizeof(T) == sizeof(float)) {
      AmaxMeter meter(ctx, 0);
      const T* from = x.data<T>();
      T* to = y.data<T>();
      ForMeasuredRanges<T>(x.size(), {&meter}, {to},
                           [=](int64_t begin, int64_t end) {
                             OnBestIsa([=] {
#pragma GCC ivdep  // y is x or does not overlap it
                               for (int64_t i = begin; i < end; ++i)
                                 to[i] = f(from[i]);
                             });
                           });
    } else {
      MapScalar(x.data<T>(), y.data<T>(), x.size(), f);
    }
  });
}

}  // namespace onnx_fp8
