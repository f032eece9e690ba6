// SPDX-License-Identifier: Apache-2.0
//
// Softmax, LogSoftmax and Softmax's gradient along one axis of x, seen as
// (outer, n, inner). Traffic: along the last axis, operands are read once and
// the result is written once, while the axis fits in registers, with up to
// 16384 elements. Along longer axes and other ones, operands are read twice.
#include <cmath>

#include "providers/cuda/core/exp_sum.h"
#include "providers/cuda/core/rows.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

struct Slices {
  FloatsIn dy, x;  // dy: of the gradient, where x is y
  FloatsOut y;
  int64_t count, n, inner;  // slices, their elements, their stride
};

// All are floats of 32 bits, which the compiler may know.
__device__ FloatsIn AsFloats(FloatsIn x) { return {x.data, Storage::kFloat}; }
__device__ FloatsOut AsFloats(FloatsOut y) { return {y.data, Storage::kFloat}; }

// The result from x: e^(x - shift) factor, or x - shift - log_sum.
template <bool kLog>
struct FromSum {
  float shift, factor, log_sum;

  __device__ explicit FromSum(const ExpSum& s)
      : shift(s.largest), factor(1 / s.sum), log_sum(logf(s.sum)) {}
  __device__ float operator()(float x) const {
    return kLog ? x - shift - log_sum : expf(x - shift) * factor;
  }
};

// ---- the last axis, in registers

template <bool kLog, int kWarps, int kVectors>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock)
    SoftmaxRowsKernel(Slices p) {
  using Threads = RowThreads<kWarps>;
  constexpr int kStep = Threads::kThreadsOfRow;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  AmaxPart unused;
  for (int64_t r = threads.first(); r < p.count; r += threads.step()) {
    const RowPart row = AlignedRow(r, p.n).From(0);
    FloatVectors<kVectors> vectors;
    auto& x = vectors.x;
    LoadVectors<kStep>(AsFloats(p.x), row, threads.thread(), kLowest, x);
    ExpSum part;
    part.Add(vectors);
    const FromSum<kLog> result(SumOfParts(threads, part));
    for (int v = 0; v < kVectors; ++v) {
      for (float& value : x[v]) value = result(value);
    }
    StoreVectors<kStep>(AsFloats(p.y), row, threads.thread(), x, unused);
  }
}

// dx = y (dy - Σ dy y)
template <int kWarps, int kVectors>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock)
    SoftmaxGradRowsKernel(Slices p) {
  using Threads = RowThreads<kWarps>;
  constexpr int kStep = Threads::kThreadsOfRow;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  AmaxPart unused;
  for (int64_t r = threads.first(); r < p.count; r += threads.step()) {
    const RowPart row = AlignedRow(r, p.n).From(0);
    float dy[kVectors][kPerThread], y[kVectors][kPerThread], sum = 0;
    LoadVectors<kStep>(AsFloats(p.dy), row, threads.thread(), 0, dy);
    LoadVectors<kStep>(AsFloats(p.x), row, threads.thread(), 0, y);
    for (int v = 0; v < kVectors; ++v) {
      for (int k = 0; k < kPerThread; ++k) sum += dy[v][k] * y[v][k];
    }
    sum = threads.Sum(sum);
    for (int v = 0; v < kVectors; ++v) {
      for (int k = 0; k < kPerThread; ++k) y[v][k] *= dy[v][k] - sum;
    }
    StoreVectors<kStep>(AsFloats(p.y), row, threads.thread(), y, unused);
  }
}

// ---- the last axis, longer

template <bool kLog>
__global__ void __launch_bounds__(kLongStep, 1) LongSoftmaxKernel(Slices p) {
  using Threads = RowThreads<kLongWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  AmaxPart unused;
  for (int64_t r = threads.first(); r < p.count; r += threads.step()) {
    const Row row = AlignedRow(r, p.n);
    const FromSum<kLog> result(
        ExpSumOfRow<false, 4>(threads, AsFloats(p.x), row));
    for (int64_t i = 0; i < row.size(); i += kLongStep) {
      const RowPart part = row.From(i);
      float x[kPerThread];
      LoadVector(AsFloats(p.x), part, threads.thread(), 0, x);
      for (float& value : x) value = result(value);
      StoreVector(AsFloats(p.y), part, threads.thread(), x, unused);
    }
  }
}

__global__ void __launch_bounds__(kLongStep, 1)
    LongSoftmaxGradKernel(Slices p) {
  using Threads = RowThreads<kLongWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  AmaxPart unused;
  for (int64_t r = threads.first(); r < p.count; r += threads.step()) {
    const Row row = AlignedRow(r, p.n);
    float dy[kPerThread], y[kPerThread], sum = 0;
    for (int64_t i = 0; i < row.size(); i += kLongStep) {
      const RowPart part = row.From(i);
      LoadVector(AsFloats(p.dy), part, threads.thread(), 0, dy);
      LoadVector(AsFloats(p.x), part, threads.thread(), 0, y);
      for (int k = 0; k < kPerThread; ++k) sum += dy[k] * y[k];
    }
    sum = threads.Sum(sum);
    for (int64_t i = 0; i < row.size(); i += kLongStep) {
      const RowPart part = row.From(i);
      LoadVector(AsFloats(p.dy), part, threads.thread(), 0, dy);
      LoadVector(AsFloats(p.x), part, threads.thread(), 0, y);
      for (int k = 0; k < kPerThread; ++k) y[k] *= dy[k] - sum;
      StoreVector(AsFloats(p.y), part, threads.thread(), y, unused);
    }
  }
}

// ---- other axes

// A block has 32 slices beside each other, and lines that share them.
constexpr int kSliceLines = 8;

// The elements of a slice that a thread has: first, first + kSliceLines, …
struct Slice {
  int64_t start, step, n;

  __device__ explicit Slice(const Slices& p) {
    int64_t i = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x % 32;
    int64_t outside = Quotient(i, p.inner);
    start = outside * p.n * p.inner + i - outside * p.inner;
    step = p.inner;
    n = i < p.count ? p.n : 0;
  }
  __device__ int64_t first() const { return threadIdx.x / 32; }
  __device__ int64_t At(int64_t i) const { return start + i * step; }
};

template <bool kLog>
__global__ void __launch_bounds__(32 * kSliceLines)
    SoftmaxSlicesKernel(Slices p) {
  __shared__ float largest[kSliceLines][32], sums[kSliceLines][32];
  int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  const Slice slice(p);
  ExpSum part;
  for (int64_t i = slice.first(); i < slice.n; i += kSliceLines * kPerThread) {
    FloatVectors<1> x;
    for (int k = 0; k < kPerThread; ++k) {
      int64_t j = i + k * kSliceLines;
      x.x[0][k] = j < slice.n ? Load(AsFloats(p.x), slice.At(j)) : kLowest;
    }
    part.Add(x);
  }
  largest[line][lane] = part.largest;
  sums[line][lane] = part.sum;
  __syncthreads();
  ExpSum all;
  for (int l = 0; l < kSliceLines; ++l) {
    all.largest = fmaxf(all.largest, largest[l][lane]);
  }
  for (int l = 0; l < kSliceLines; ++l) {
    all.sum += ExpSum{largest[l][lane], sums[l][lane]}.Relative(all.largest);
  }
  const FromSum<kLog> result(all);
  for (int64_t i = slice.first(); i < slice.n; i += kSliceLines) {
    int64_t at = slice.At(i);
    Store(AsFloats(p.y), at, result(Load(AsFloats(p.x), at)));
  }
}

__global__ void __launch_bounds__(32 * kSliceLines)
    SoftmaxGradSlicesKernel(Slices p) {
  __shared__ float sums[kSliceLines][32];
  int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  const Slice slice(p);
  float sum = 0;
  for (int64_t i = slice.first(); i < slice.n; i += kSliceLines) {
    int64_t at = slice.At(i);
    sum += Load(AsFloats(p.dy), at) * Load(AsFloats(p.x), at);
  }
  sums[line][lane] = sum;
  __syncthreads();
  sum = 0;
  for (int l = 0; l < kSliceLines; ++l) sum += sums[l][lane];
  for (int64_t i = slice.first(); i < slice.n; i += kSliceLines) {
    int64_t at = slice.At(i);
    float dy = Load(AsFloats(p.dy), at);
    Store(AsFloats(p.y), at, Load(AsFloats(p.x), at) * (dy - sum));
  }
}

// ---- the ops

template <bool kLog>
struct StartSoftmax {
  const KernelContext& ctx;
  const Slices& p;

  template <int kWarps, int kVectors>
  void operator()() const {
    LaunchRows<kWarps>(ctx, SoftmaxRowsKernel<kLog, kWarps, kVectors>, p.count,
                       p);
  }
};

struct StartSoftmaxGrad {
  const KernelContext& ctx;
  const Slices& p;

  template <int kWarps, int kVectors>
  void operator()() const {
    LaunchRows<kWarps>(ctx, SoftmaxGradRowsKernel<kWarps, kVectors>, p.count,
                       p);
  }
};

void LaunchSlices(const KernelContext& ctx, void (*kernel)(Slices),
                  const Slices& p) {
  Launch(kernel, static_cast<unsigned>(DivideUp(p.count, 32)), 32 * kSliceLines,
         0, QueueOf(ctx).stream(), p);
}

// The slices of a float operand, and of result 0.
Slices SlicesOf(KernelContext& ctx, size_t operand) {
  const Tensor& x = Operand(ctx, operand);
  // A scalar is a vector of one element.
  int64_t axis =
      AxisIn(ctx, ctx.Int("axis", -1), std::max<int64_t>(x.rank(), 1));
  AxisView v = x.rank() == 0 ? AxisView{1, 1, 1} : ViewAlong(x.shape(), axis);
  CheckOperand(ctx, operand, DType::kFloat, x.shape());
  Slices p = {};
  p.x = FloatsOf(ctx, operand);
  p.y = FloatsTo(ctx, 0, x.shape());
  p.count = v.outer * v.inner;
  p.n = v.n;
  p.inner = v.inner;
  return p;
}

bool HasWork(const Slices& p) { return p.count > 0 && p.n > 0 && p.y.data; }

template <bool kLog>
void Softmax(KernelContext& ctx) {
  Slices p = SlicesOf(ctx, 0);
  if (!HasWork(p)) return;
  if (p.inner > 1) return LaunchSlices(ctx, SoftmaxSlicesKernel<kLog>, p);
  if (WithRowOf(p.n, StartSoftmax<kLog>{ctx, p})) return;
  LaunchRows<kLongWarps>(ctx, LongSoftmaxKernel<kLog>, p.count, p);
}

void SoftmaxGrad(KernelContext& ctx) {
  Slices p = SlicesOf(ctx, 1);
  CheckOperand(ctx, 0, DType::kFloat, ctx.In(1).shape());
  p.dy = FloatsOf(ctx, 0);
  if (!HasWork(p)) return;
  if (p.inner > 1) return LaunchSlices(ctx, SoftmaxGradSlicesKernel, p);
  if (WithRowOf(p.n, StartSoftmaxGrad{ctx, p})) return;
  LaunchRows<kLongWarps>(ctx, LongSoftmaxGradKernel, p.count, p);
}

}  // namespace

void RegisterSoftmax(KernelRegistry& r) {
  r.Add("Softmax", Softmax<false>, {.in_place = {{0, 0}}});
  r.Add("LogSoftmax", Softmax<true>, {.in_place = {{0, 0}}});
  r.Add("SoftmaxGrad", SoftmaxGrad, {.in_place = {{0, 0}, {1, 0}}}, kDomain);
}

}  // namespace onnx_fp8::cuda
