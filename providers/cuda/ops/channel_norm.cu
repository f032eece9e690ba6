// SPDX-License-Identifier: Apache-2.0
//
// Normalization with statistics per channel, per group of channels or along an
// axis. As on the CPU, statistics are computed and applied in double, so
// results are its but for the last bit. Traffic: the operand is read once, or
// twice where its statistics are computed, and the result is written once.
// Channels that lie side by side (N x C) are read in sectors.
#include <cmath>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/rows.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/channels.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int64_t kChunk = 16384;  // elements of a segment per block

// ---- statistics

// Segment s of x (outer, count, inner) is all that has index s in the middle.
// It is cut into chunks, whose sums are added in their order.
struct Segments {
  FloatsIn x;
  int64_t outer, count, inner, chunks;
  double* sums = nullptr;  // (count, chunks, 2): Σ d and Σ d², d: see First

  __device__ int64_t size() const { return outer * inner; }
  __device__ float At(int64_t s, int64_t i) const {
    int64_t o = Quotient(i, inner);
    return Load(x, (o * count + s) * inner + i - o * inner);
  }
  // Differences from a number of the segment cancel nothing.
  __device__ double First(int64_t s) const { return At(s, 0); }
};

// Adds up a and b of all threads; thread 0 gets the sums.
__device__ void SumOfBlock(double& a, double& b) {
  __shared__ double parts[2][kThreads];
  parts[0][threadIdx.x] = a;
  parts[1][threadIdx.x] = b;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) {
      for (auto& part : parts) part[threadIdx.x] += part[threadIdx.x + half];
    }
    __syncthreads();
  }
  a = parts[0][0];
  b = parts[1][0];
}

__global__ void __launch_bounds__(kThreads) SegmentsKernel(Segments g) {
  int64_t s = blockIdx.x / g.chunks, chunk = blockIdx.x % g.chunks;
  int64_t end = (chunk + 1) * kChunk;
  if (end > g.size()) end = g.size();
  double first = g.First(s), sum = 0, squares = 0;
  for (int64_t i = chunk * kChunk + threadIdx.x; i < end; i += kThreads) {
    double d = g.At(s, i) - first;
    sum += d;
    squares += d * d;
  }
  SumOfBlock(sum, squares);
  if (threadIdx.x != 0) return;
  g.sums[2 * blockIdx.x] = sum;
  g.sums[2 * blockIdx.x + 1] = squares;
}

struct Moments {
  double mean, inverse;  // of the deviation
};

// A running statistic: before and after the step.
struct Running {
  FloatsIn old;
  FloatsOut next;

  __device__ void Update(int64_t s, double momentum, double batch) const {
    if (!next.data) return;
    double before = Load(old, s);
    Store(next, s,
          static_cast<float>(before * momentum + batch * (1.0 - momentum)));
  }
};

__global__ void __launch_bounds__(kThreads)
    MomentsKernel(Segments g, double epsilon, double momentum, Running mean,
                  Running variance, Moments* to) {
  int64_t s = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (s >= g.count) return;
  double sum = 0, squares = 0;
  for (int64_t c = s * g.chunks; c < (s + 1) * g.chunks; ++c) {
    sum += g.sums[2 * c];
    squares += g.sums[2 * c + 1];
  }
  auto n = static_cast<double>(g.size());
  double shift = sum / n, spread = squares / n - shift * shift;
  if (spread < 0) spread = 0;
  double center = g.First(s) + shift;
  to[s] = {center, 1.0 / sqrt(spread + epsilon)};
  mean.Update(s, momentum, center);
  variance.Update(s, momentum, spread);
}

// Moments from the operands mean and variance.
__global__ void __launch_bounds__(kThreads)
    GivenMomentsKernel(FloatsIn mean, FloatsIn variance, int64_t count,
                       double epsilon, Moments* to) {
  int64_t s = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (s >= count) return;
  double spread = Load(variance, s);
  to[s] = {Load(mean, s), 1.0 / sqrt(spread + epsilon)};
}

// ---- the result

struct Normalization {
  FloatsIn x, scale, bias;
  FloatsOut y;
  DeviceAmax* amax;
  int64_t size, channels, inner;
  int64_t segment;  // elements side by side; 0: segments are channels
  const Moments* moments;
};

__global__ void __launch_bounds__(kThreads) NormalizeKernel(Normalization p) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  AmaxPart seen;
  if (at < p.size) {
    int64_t row = Quotient(at, p.inner);
    int64_t channel = row - Quotient(row, p.channels) * p.channels;
    Moments m = p.moments[p.segment ? Quotient(at, p.segment) : channel];
    double centered = Load(p.x, at) - m.mean;
    double factor = m.inverse * Load(p.scale, channel);
    seen.Add(
        Store(p.y, at,
              static_cast<float>(centered * factor + Load(p.bias, channel))));
  }
  seen.AddTo(p.amax);
}

// ---- BatchNormalization, InstanceNormalization, GroupNormalization

FloatsIn PerChannel(const KernelContext& ctx, size_t i, int64_t channels) {
  CheckOperand(ctx, i, DType::kFloat, {channels});
  return FloatsOf(ctx, i);
}

Normalization NormalizationOf(KernelContext& ctx, const AxisView& v) {
  const Tensor& x = ctx.In(0);
  Normalization p = {};
  p.x = FloatsOf(ctx, 0);
  p.scale = PerChannel(ctx, 1, v.n);
  p.bias = PerChannel(ctx, 2, v.n);
  p.y = FloatsTo(ctx, 0, x.shape());
  p.amax = ClearedAmax(ctx, 0);
  p.size = p.y.data ? x.size() : 0;
  p.channels = v.n;
  p.inner = v.inner;
  return p;
}

// Segments without memory for their sums.
Segments SegmentsOf(const KernelContext& ctx, int64_t outer, int64_t count,
                    int64_t inner) {
  return {FloatsOf(ctx, 0), outer, count, inner,
          DivideUp(outer * inner, kChunk)};
}

Segments ChannelsOf(const KernelContext& ctx) {
  AxisView v = Channels(ctx, Operand(ctx, 0));
  return SegmentsOf(ctx, v.outer, v.n, v.inner);
}

ChannelGroups GroupsIn(const KernelContext& ctx) {
  int64_t groups = -1;  // each channel
  if (ctx.node().op == "GroupNormalization") {
    groups = ctx.Int("num_groups", 0);
    Check(groups > 0, "[", ctx.Where(), "] expected num_groups > 0, got ",
          groups);
  }
  return GroupsOf(ctx, Operand(ctx, 0), groups);
}

// Each (batch, group) is contiguous.
Segments SegmentsOf(const KernelContext& ctx, const ChannelGroups& g) {
  int64_t channels = g.groups > 0 ? g.view.n / g.groups : 0;
  return SegmentsOf(ctx, 1, g.view.outer * g.groups, channels * g.view.inner);
}

// The kernel's workspace: sums, and moments behind them.
size_t BytesOf(const Segments& g) {
  return static_cast<size_t>(g.count) *
         (static_cast<size_t>(2 * g.chunks) * sizeof(double) + sizeof(Moments));
}

Moments* TakeMemory(const KernelContext& ctx, Segments& g) {
  g.sums = static_cast<double*>(ctx.Workspace(BytesOf(g)));
  return reinterpret_cast<Moments*>(g.sums + 2 * g.count * g.chunks);
}

void FindMoments(const KernelContext& ctx, const Segments& g, double momentum,
                 Running mean, Running variance, Moments* moments) {
  cudaStream_t stream = QueueOf(ctx).stream();
  Launch(SegmentsKernel, static_cast<unsigned>(g.count * g.chunks), kThreads, 0,
         stream, g);
  Launch(MomentsKernel, BlocksFor(g.count), kThreads, 0, stream, g,
         ctx.Float("epsilon", 1e-5f), momentum, mean, variance, moments);
}

void Normalize(const KernelContext& ctx, const Normalization& p) {
  if (p.size == 0) return;
  Launch(NormalizeKernel, BlocksFor(p.size), kThreads, 0, QueueOf(ctx).stream(),
         p);
}

void BatchNormalization(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  AxisView v = Channels(ctx, x);
  Normalization p = NormalizationOf(ctx, v);
  FloatsIn mean = PerChannel(ctx, 3, v.n), variance = PerChannel(ctx, 4, v.n);
  Check(x.size() > 0 || v.n == 0, "[", ctx.Where(),
        "] expected elements on the GPU, got shape ", ToString(x.shape()));
  if (v.n == 0) return;
  Segments g = ChannelsOf(ctx);
  Moments* moments = TakeMemory(ctx, g);
  if (ctx.Int("training_mode", 0) != 0) {
    FindMoments(ctx, g, ctx.Float("momentum", 0.9f),
                {mean, FloatsTo(ctx, 1, {v.n})},
                {variance, FloatsTo(ctx, 2, {v.n})}, moments);
  } else {
    Launch(GivenMomentsKernel, BlocksFor(v.n), kThreads, 0,
           QueueOf(ctx).stream(), mean, variance, v.n,
           ctx.Float("epsilon", 1e-5f), moments);
  }
  p.moments = moments;
  Normalize(ctx, p);
}

// InstanceNormalization, GroupNormalization
void NormalizeGroups(KernelContext& ctx) {
  const ChannelGroups groups = GroupsIn(ctx);
  Normalization p = NormalizationOf(ctx, groups.view);
  if (ctx.In(0).size() == 0) return;
  Segments g = SegmentsOf(ctx, groups);
  Moments* moments = TakeMemory(ctx, g);
  p.segment = g.inner;
  FindMoments(ctx, g, 0, {}, {}, moments);
  p.moments = moments;
  Normalize(ctx, p);
}

// ---- the rest

// y = x / (Σ |x|^p)^(1/p) along an axis, by a block for each slice.
__global__ void __launch_bounds__(kThreads)
    LpNormKernel(FloatsIn x, AxisView v, bool squares, FloatsOut y) {
  int64_t slice = blockIdx.x;
  int64_t start = slice / v.inner * v.n * v.inner + slice % v.inner;
  double sum = 0, unused = 0;
  for (int64_t i = threadIdx.x; i < v.n; i += kThreads) {
    double e = Load(x, start + i * v.inner);
    sum += squares ? e * e : fabs(e);
  }
  SumOfBlock(sum, unused);
  double norm = squares ? sqrt(sum) : sum;
  if (norm == 0) norm = 1;  // zeros stay zeros
  for (int64_t i = threadIdx.x; i < v.n; i += kThreads) {
    int64_t at = start + i * v.inner;
    Store(y, at, static_cast<float>(Load(x, at) / norm));
  }
}

void LpNormalization(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t p = ctx.Int("p", 2);
  Check(p == 1 || p == 2, "[", ctx.Where(), "] expected p of 1 or 2, got ", p);
  Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
  AxisView v = ViewAlong(x.shape(), AxisIn(ctx, ctx.Int("axis", -1), x.rank()));
  FloatsOut y = FloatsTo(ctx, 0, x.shape());
  if (x.size() == 0) return;
  Launch(LpNormKernel, static_cast<unsigned>(v.outer * v.inner), kThreads, 0,
         QueueOf(ctx).stream(), FloatsOf(ctx, 0), v, p == 2, y);
}

// y = x / (bias + alpha/size Σ x²)^beta over `size` channels around x's.
struct ResponseNorm {
  FloatsIn x;
  FloatsOut y;
  int64_t size, channels, inner, before, behind;
  double scale, beta, bias;
};

__global__ void __launch_bounds__(kThreads) ResponseNormKernel(ResponseNorm p) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= p.size) return;
  int64_t channel = at / p.inner % p.channels;
  int64_t first = channel < p.before ? -channel : -p.before;
  int64_t left = p.channels - 1 - channel;
  int64_t last = left < p.behind ? left : p.behind;
  double squares = 0;
  for (int64_t c = first; c <= last; ++c) {
    double e = Load(p.x, at + c * p.inner);
    squares += e * e;
  }
  Store(p.y, at,
        static_cast<float>(Load(p.x, at) /
                           pow(p.bias + p.scale * squares, p.beta)));
}

void Lrn(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  AxisView v = Channels(ctx, x);
  int64_t size = ctx.Int("size", 0);
  Check(size > 0, "[", ctx.Where(), "] expected size > 0, got ", size);
  ResponseNorm p = {FloatsOf(ctx, 0),
                    FloatsTo(ctx, 0, x.shape()),
                    x.size(),
                    v.n,
                    v.inner,
                    (size - 1) / 2,
                    size / 2,
                    ctx.Float("alpha", 1e-4f) / static_cast<double>(size),
                    ctx.Float("beta", 0.75f),
                    ctx.Float("bias", 1.0f)};
  if (p.size == 0) return;
  Launch(ResponseNormKernel, BlocksFor(p.size), kThreads, 0,
         QueueOf(ctx).stream(), p);
}

}  // namespace

void RegisterChannelNorm(KernelRegistry& r) {
  KernelTraits kept = {.measures = {0}, .narrow_in = {0}, .narrow_out = {0}};
  kept.workspace = [](KernelContext& ctx) { return BytesOf(ChannelsOf(ctx)); };
  r.Add("BatchNormalization", BatchNormalization, kept);
  kept.workspace = [](KernelContext& ctx) {
    return BytesOf(SegmentsOf(ctx, GroupsIn(ctx)));
  };
  r.Add("InstanceNormalization", NormalizeGroups, kept);
  r.Add("GroupNormalization", NormalizeGroups, kept);
  r.Add("LpNormalization", LpNormalization);
  r.Add("LRN", Lrn);
}

}  // namespace onnx_fp8::cuda
