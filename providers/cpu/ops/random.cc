// SPDX-License-Identifier: Apache-2.0
//
// Random values; seed.h says on which facts they depend.
#include <cmath>
#include <numbers>

#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/seed.h"

namespace onnx_fp8 {
namespace {

// Uniform in [0, 1), 53 bits.
double Uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(RandomBits(seed, counter) >> 11) * 0x1p-53;
}

// y[i] = value(i), converted.
template <typename Value>
void Generate(KernelContext& ctx, DType dtype, const Shape& shape,
              const Value& value) {
  Tensor& y = ctx.Out(0, dtype, shape);
  Tensor values =
      dtype == DType::kDouble ? y : Tensor::Allocate(DType::kDouble, shape);
  double* to = values.data<double>();
  ParallelFor(values.size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = value(i);
  });
  if (dtype != DType::kDouble) CopyBytes(ConvertTo(values, dtype), y);
}

void Uniforms(KernelContext& ctx, DType dtype, const Shape& shape) {
  uint64_t seed = SeedOf(ctx);
  double low = ctx.Float("low", 0), high = ctx.Float("high", 1);
  Generate(ctx, dtype, shape, [=](int64_t i) {
    return low + (high - low) * Uniform(seed, static_cast<uint64_t>(i));
  });
}

// Box and Muller, 1958.
void Normals(KernelContext& ctx, DType dtype, const Shape& shape) {
  uint64_t seed = SeedOf(ctx);
  double mean = ctx.Float("mean", 0), scale = ctx.Float("scale", 1);
  Generate(ctx, dtype, shape, [=](int64_t i) {
    auto counter = 2 * static_cast<uint64_t>(i);
    double radius = std::sqrt(-2 * std::log1p(-Uniform(seed, counter)));
    double angle = 2 * std::numbers::pi * Uniform(seed, counter + 1);
    return mean + scale * radius * std::cos(angle);
  });
}

Shape ShapeIn(const KernelContext& ctx) {
  Check(ctx.Has("shape"), "[", ctx.Where(), "] expected a shape, got none");
  Shape shape = ctx.Ints("shape");
  CheckSizes(ctx, shape);
  return shape;
}

void RandomUniformKernel(KernelContext& ctx) {
  Uniforms(ctx, DTypeIn(ctx, "dtype", DType::kFloat), ShapeIn(ctx));
}

void RandomNormalKernel(KernelContext& ctx) {
  Normals(ctx, DTypeIn(ctx, "dtype", DType::kFloat), ShapeIn(ctx));
}

void RandomUniformLike(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Uniforms(ctx, DTypeIn(ctx, "dtype", x.dtype()), x.shape());
}

void RandomNormalLike(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Normals(ctx, DTypeIn(ctx, "dtype", x.dtype()), x.shape());
}

// y[i] = 1 with probability x[i], else 0
void Bernoulli(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  uint64_t seed = SeedOf(ctx);
  Tensor p = ConvertTo(x, DType::kDouble);
  const double* chance = p.data<double>();
  Generate(ctx, DTypeIn(ctx, "dtype", x.dtype()), x.shape(), [=](int64_t i) {
    return Uniform(seed, static_cast<uint64_t>(i)) < chance[i] ? 1.0 : 0.0;
  });
}

}  // namespace

void RegisterRandom(KernelRegistry& r) {
  r.Add("RandomUniform", RandomUniformKernel);
  r.Add("RandomNormal", RandomNormalKernel);
  r.Add("RandomUniformLike", RandomUniformLike);
  r.Add("RandomNormalLike", RandomNormalLike);
  r.Add("Bernoulli", Bernoulli);
}

}  // namespace onnx_fp8
