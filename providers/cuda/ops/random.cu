// SPDX-License-Identifier: Apache-2.0
//
// Random values, drawn as the CPU draws them: a value depends on the seed, the
// draw's number and its place alone. Dropout's results are the CPU's bit by
// bit; uniform values, too, and normal ones within an ulp of double. The draw's
// number lies on the device, so that recorded work draws anew. Traffic: Dropout
// reads its operand once, all results are written once.
#include <cmath>

#include "base/random.h"
#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/ops/convert.h"
#include "providers/cuda/ops/fill.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/seed.h"

namespace onnx_fp8::cuda {
namespace {

struct Draw {
  uint64_t own;
  const uint64_t* number;

  __device__ uint64_t Seed() const { return RandomBits(own, *number); }
};

Draw DrawOf(const KernelContext& ctx) {
  return {OwnSeedOf(ctx), ctx.DrawOnDevice()};
}

// ---- Dropout

struct Drop {
  FloatsIn x;
  FloatsOut y;
  bool* kept;  // null: nobody reads it
  int64_t n;
  Draw draw;
  double ratio;
  float scale;
};

__global__ void __launch_bounds__(kThreads)
    DropoutKernel(Drop d, DeviceAmax* amax) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  AmaxPart seen;
  if (i < d.n) {
    bool keep = static_cast<double>(RandomUniform(
                    d.draw.Seed(), static_cast<uint64_t>(i))) >= d.ratio;
    if (d.kept) d.kept[i] = keep;
    if (d.y.data) {
      seen.Add(Store(d.y, i, keep ? Load(d.x, i) * d.scale : 0.0f));
    }
  }
  seen.AddTo(amax);
}

struct Copied {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0];
  }
};

void Dropout(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  double ratio = ctx.HasIn(1) ? NumberIn(ctx, 1) : 0.5;
  bool training = ctx.HasIn(2) && NumberIn(ctx, 2) != 0;
  Check(ratio >= 0 && ratio <= 1, "[", ctx.Where(),
        "] expected a ratio in 0…1, got ", ratio);
  bool* kept = nullptr;
  if (ctx.HasOut(1)) {
    kept = static_cast<bool*>(ctx.Out(1, DType::kBool, x.shape()).raw());
  }
  if (!training || ratio == 0) {
    uint8_t yes = 1;
    if (kept) FillWith(ctx, &yes, 1, x.size(), kept);
    return MapElements<1, 1>(ctx, Copied());
  }
  Drop d = {FloatsOf(ctx, 0),
            FloatsTo(ctx, 0, x.shape()),
            kept,
            x.size(),
            DrawOf(ctx),
            ratio,
            static_cast<float>(1.0 / (1.0 - ratio))};
  DeviceAmax* amax = ClearedAmax(ctx, 0);
  if (d.n == 0) return;
  Launch(DropoutKernel, BlocksFor(d.n), kThreads, 0, QueueOf(ctx).stream(), d,
         amax);
}

// ---- other distributions, in double

// In [0, 1), 53 bits.
__device__ double Uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(RandomBits(seed, counter) >> 11) * 0x1p-53;
}

struct UniformOf {
  double low, high;
  __device__ double operator()(uint64_t seed, int64_t i) const {
    return low + (high - low) * Uniform(seed, static_cast<uint64_t>(i));
  }
};

// Box and Muller, 1958.
struct NormalOf {
  double mean, scale;
  __device__ double operator()(uint64_t seed, int64_t i) const {
    uint64_t counter = 2 * static_cast<uint64_t>(i);
    double radius = sqrt(-2 * log1p(-Uniform(seed, counter)));
    double angle = 6.283185307179586 * Uniform(seed, counter + 1);
    return mean + scale * radius * cos(angle);
  }
};

// 1 with probability x[i], else 0
struct TrueWith {
  FloatsIn x;
  __device__ double operator()(uint64_t seed, int64_t i) const {
    double chance = Load(x, i);
    return Uniform(seed, static_cast<uint64_t>(i)) < chance ? 1.0 : 0.0;
  }
};

template <typename Value>
__global__ void __launch_bounds__(kThreads)
    GenerateKernel(Draw draw, Value value, int64_t n, double* y) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i < n) y[i] = value(draw.Seed(), i);
}

// Room for values that are not written as they are drawn.
size_t ValueBytes(const Tensor& y) {
  if (y.dtype() == DType::kDouble) return 0;
  return static_cast<size_t>(y.size()) * sizeof(double);
}

// Other dtypes than double are written and read once more.
template <typename Value>
void Generate(KernelContext& ctx, DType dtype, const Shape& shape,
              Value value) {
  Tensor& y = ctx.Out(0, dtype, shape);
  if (y.size() == 0) return;
  Queue& queue = QueueOf(ctx);
  bool direct = dtype == DType::kDouble;
  void* values = direct ? y.raw() : ctx.Workspace(ValueBytes(y));
  Launch(GenerateKernel<Value>, BlocksFor(y.size()), kThreads, 0,
         queue.stream(), DrawOf(ctx), value, y.size(),
         static_cast<double*>(values));
  if (direct) return;
  Convert(queue, ctx.Where(), values, DType::kDouble, y.raw(), dtype, y.size());
}

Shape ShapeIn(const KernelContext& ctx) {
  Check(ctx.Has("shape"), "[", ctx.Where(), "] expected a shape, got none");
  Shape shape = ctx.Ints("shape");
  CheckSizes(ctx, shape);
  return shape;
}

DType DTypeLike(const KernelContext& ctx) {
  return DTypeIn(ctx, "dtype", Operand(ctx, 0).dtype());
}

UniformOf UniformIn(const KernelContext& ctx) {
  return {ctx.Float("low", 0), ctx.Float("high", 1)};
}

NormalOf NormalIn(const KernelContext& ctx) {
  return {ctx.Float("mean", 0), ctx.Float("scale", 1)};
}

void Uniforms(KernelContext& ctx) {
  Generate(ctx, DTypeIn(ctx, "dtype", DType::kFloat), ShapeIn(ctx),
           UniformIn(ctx));
}
void Normals(KernelContext& ctx) {
  Generate(ctx, DTypeIn(ctx, "dtype", DType::kFloat), ShapeIn(ctx),
           NormalIn(ctx));
}
void UniformsLike(KernelContext& ctx) {
  Generate(ctx, DTypeLike(ctx), ctx.In(0).shape(), UniformIn(ctx));
}
void NormalsLike(KernelContext& ctx) {
  Generate(ctx, DTypeLike(ctx), ctx.In(0).shape(), NormalIn(ctx));
}
void Bernoulli(KernelContext& ctx) {
  Generate(ctx, DTypeLike(ctx), ctx.In(0).shape(), TrueWith{FloatsOf(ctx, 0)});
}

}  // namespace

void RegisterRandom(KernelRegistry& r) {
  r.Add("Dropout", Dropout,
        {.in_place = {{0, 0}},
         .measures = {0},
         .host_inputs = {1, 2},
         .narrow_in = {0},
         .narrow_out = {0},
         .draws = true});
  const KernelTraits draws = {
      .draws = true,
      .workspace = [](KernelContext& ctx) { return ValueBytes(ctx.Out(0)); }};
  r.Add("RandomUniform", Uniforms, draws);
  r.Add("RandomNormal", Normals, draws);
  r.Add("RandomUniformLike", UniformsLike, draws);
  r.Add("RandomNormalLike", NormalsLike, draws);
  r.Add("Bernoulli", Bernoulli, draws);
}

}  // namespace onnx_fp8::cuda
