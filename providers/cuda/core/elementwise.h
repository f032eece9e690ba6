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
#include "providers/ops/divide_up.h"

namespace onnx_fp8::cuda {

inline constexpr int kThreads = 256;
inline constexpr int kPerThread = 4;  // elements, one vector
// Units of a thread, kThreads apart, of kernels that load several at once.
inline constexpr int kAtOnce = 4;
inline constexpr int64_t kPerBlock = kThreads * kAtOnce;
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

// The vectors of a thread. It loads them all before it waits for the first one.
template <int kIn>
inline constexpr int kVectorsOf = kIn == 1 ? 4 : 2;

// If kNarrow, all operands and results are kept as bfloat16.
template <bool kNarrow, typename F, int kIn, int kOut>
__global__ void __launch_bounds__(kThreads)
    ElementsKernel(Elements<kIn, kOut> e, F f) {
  constexpr int kVectors = kVectorsOf<kIn>;
  constexpr int64_t kStep = int64_t{kThreads} * kPerThread;
  int64_t first = static_cast<int64_t>(blockIdx.x) * kVectors * kStep +
                  int64_t{threadIdx.x} * kPerThread;
  AmaxPart seen[kOut];
  Vector raw[kVectors][kIn];
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    if (first + v * kStep + kPerThread > e.n) continue;
    ONNX_FP8_UNROLL
    for (int i = 0; i < kIn; ++i) {
      raw[v][i] = LoadVector4(Known<kNarrow>(e.in[i]), first + v * kStep);
    }
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    int64_t at = first + v * kStep;
    if (at + kPerThread > e.n) continue;
    float x[kIn][kPerThread], y[kOut][kPerThread];
    for (int i = 0; i < kIn; ++i) {
      ToFloats(KnownStorage<kNarrow>(e.in[i].storage), raw[v][i], x[i]);
    }
    ONNX_FP8_UNROLL
    for (int k = 0; k < kPerThread; ++k) {
      float in[kIn], out[kOut];
      for (int i = 0; i < kIn; ++i) in[i] = x[i][k];
      f(in, out);
      for (int i = 0; i < kOut; ++i) y[i][k] = out[i];
    }
    ONNX_FP8_UNROLL
    for (int i = 0; i < kOut; ++i) {
      if (!e.out[i].data) continue;
      Store4(Known<kNarrow>(e.out[i]), at, y[i]);
      if (e.amax[i]) seen[i].Add4(y[i]);
    }
  }
  // Fewer than four elements are left for one thread.
  int64_t last = e.n / kPerThread * kPerThread;
  bool its = (last - first) % kStep == 0 && last >= first &&
             last < first + kVectors * kStep;
  for (int64_t j = last; its && j < e.n; ++j) {
    float in[kIn], out[kOut];
    for (int i = 0; i < kIn; ++i) in[i] = Load(e.in[i], j);
    f(in, out);
    for (int i = 0; i < kOut; ++i) {
      if (e.out[i].data) seen[i].Add(Store(e.out[i], j, out[i]));
    }
  }
  ONNX_FP8_UNROLL
  for (int i = 0; i < kOut; ++i) seen[i].AddOfBlock(e.amax[i]);
}

}  // namespace

// f(in, out) computes one element of all results from one element of all
// operands, float arrays of kIn and kOut; e.n elements. Results may lie where
// operands do. Amaxes are of the numbers that are kept.
template <typename F, int kIn, int kOut>
void ForElements(const KernelContext& ctx, Elements<kIn, kOut> e, F f) {
  if (e.n == 0) return;
  auto blocks = static_cast<unsigned>(
      DivideUp(e.n, kThreads * kPerThread * kVectorsOf<kIn>));
  bool narrow = AreBFloat16(e.in) && AreBFloat16(e.out);
  Launch(narrow ? ElementsKernel<true, F, kIn, kOut>
                : ElementsKernel<false, F, kIn, kOut>,
         blocks, kThreads, 0, QueueOf(ctx).stream(), e, f);
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
