// SPDX-License-Identifier: Apache-2.0
//
// Ops that work element by element on operands of one shape. Traffic: each
// operand is read once, each result is written once.
#pragma once

#include <cstdint>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/device.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/load_store.h"
#include "providers/cuda/core/queue.h"
#include "providers/divide_up.h"

namespace onnx_fp8::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kPerThread = 4;  // elements, one vector
// Enough to fill the largest GPU, for kernels whose blocks loop.
inline constexpr unsigned kMostBlocks = 2048;

template <int kIn, int kOut>
struct Elements {
  FloatsIn in[kIn];
  FloatsOut out[kOut];
  DeviceAmax* amax[kOut];
  int64_t n;
};

namespace {

template <typename F, int kIn, int kOut>
__global__ void __launch_bounds__(kThreads)
    ElementsKernel(Elements<kIn, kOut> e, F f) {
  int64_t at =
      (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
  AmaxPart seen[kOut];
  float x[kIn][kPerThread], y[kOut][kPerThread];
  auto compute = [&](int k) {
    float in[kIn], out[kOut];
    for (int i = 0; i < kIn; ++i) in[i] = x[i][k];
    f(in, out);
    for (int i = 0; i < kOut; ++i) y[i][k] = out[i];
  };
  if (at + kPerThread <= e.n) {
    for (int i = 0; i < kIn; ++i) Load4(e.in[i], at, x[i]);
    for (int k = 0; k < kPerThread; ++k) compute(k);
    for (int i = 0; i < kOut; ++i) {
      if (!e.out[i].data) continue;
      Store4(e.out[i], at, y[i]);
      for (float v : y[i]) seen[i].Add(v);
    }
  } else {
    for (int64_t j = at; j < e.n; ++j) {
      for (int i = 0; i < kIn; ++i) x[i][0] = Load(e.in[i], j);
      compute(0);
      for (int i = 0; i < kOut; ++i) {
        if (e.out[i].data) seen[i].Add(Store(e.out[i], j, y[i][0]));
      }
    }
  }
  for (int i = 0; i < kOut; ++i) seen[i].AddTo(e.amax[i]);
}

}  // namespace

// f(in, out) computes one element of all results from one element of all
// operands, float arrays of kIn and kOut; e.n elements. Results may lie where
// operands do. Amaxes are of the numbers that are kept.
template <typename F, int kIn, int kOut>
void ForElements(const KernelContext& ctx, Elements<kIn, kOut> e, F f) {
  if (e.n == 0) return;
  auto blocks = static_cast<unsigned>(DivideUp(e.n, kThreads * kPerThread));
  Launch(ElementsKernel<F, kIn, kOut>, blocks, kThreads, 0,
         QueueOf(ctx).stream(), e, f);
}

// Operands 0 … kIn-1 and results 0 … kOut-1 of the node, all of one shape.
// Errors: an operand is missing, or of another shape or dtype.
template <int kIn, int kOut, typename F>
void MapElements(KernelContext& ctx, F f) {
  const Shape shape = Operand(ctx, 0).shape();
  Elements<kIn, kOut> e;
  e.n = Operand(ctx, 0).size();
  for (int i = 0; i < kIn; ++i) {
    auto k = static_cast<size_t>(i);
    Check(Operand(ctx, k).shape() == shape, "[", ctx.Where(),
          "] expected operands of one shape, got ", ToString(shape), " and ",
          ToString(ctx.In(k).shape()));
    e.in[i] = FloatsOf(ctx, k);
  }
  for (int i = 0; i < kOut; ++i) {
    auto k = static_cast<size_t>(i);
    e.out[i] = FloatsTo(ctx, k, shape);
    e.amax[i] = ClearedAmax(ctx, k);
  }
  ForElements(ctx, e, f);
}

}  // namespace onnx_fp8::cuda
