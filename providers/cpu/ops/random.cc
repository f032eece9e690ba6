// SPDX-License-Identifier: Apache-2.0
//
// Random values; seed.h says on which facts they depend.
#include <cmath>
#include <numbers>

#include "providers/cpu/arguments.h"
#include "providers/cpu/ops/seed.h"
#include "providers/cpu/register.h"
#include "providers/cpu/tasks.h"

namespace onnx_fp8 {
namespace {

// Uniform in [0, 1), 53 bits.
double Uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(RandomBits(seed, counter) >> 11) * 0x1p-53;
}

// y[i] = value(i), converted.
template <typename Value>
void Generate(KernelContext& c, DType dtype, const Shape& shape,
              const Value& value) {
  Tensor& y = c.Out(0, dtype, shape);
  Tensor values =
      dtype == DType::kDouble ? y : Tensor::Allocate(DType::kDouble, shape);
  double* to = values.data<double>();
  ParallelFor(values.size(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = value(i);
  });
  if (dtype != DType::kDouble) CopyBytes(ConvertTo(values, dtype), y);
}

void Uniforms(KernelContext& c, DType dtype, const Shape& shape) {
  uint64_t seed = SeedOf(c);
  double low = c.Float("low", 0), high = c.Float("high", 1);
  Generate(c, dtype, shape, [=](int64_t i) {
    return low + (high - low) * Uniform(seed, static_cast<uint64_t>(i));
  });
}

// Box and Muller, 1958.
void Normals(KernelContext& c, DType dtype, const Shape& shape) {
  uint64_t seed = SeedOf(c);
  double mean = c.Float("mean", 0), scale = c.Float("scale", 1);
  Generate(c, dtype, shape, [=](int64_t i) {
    auto counter = 2 * static_cast<uint64_t>(i);
    double radius = std::sqrt(-2 * std::log1p(-Uniform(seed, counter)));
    double angle = 2 * std::numbers::pi * Uniform(seed, counter + 1);
    return mean + scale * radius * std::cos(angle);
  });
}

Shape ShapeIn(const KernelContext& c) {
  Check(c.Has("shape"), "[", c.Where(), "] expected a shape, got none");
  Shape shape = c.Ints("shape");
  CheckSizes(c, shape);
  return shape;
}

void RandomUniformKernel(KernelContext& c) {
  Uniforms(c, DTypeIn(c, "dtype", DType::kFloat), ShapeIn(c));
}

void RandomNormalKernel(KernelContext& c) {
  Normals(c, DTypeIn(c, "dtype", DType::kFloat), ShapeIn(c));
}

void RandomUniformLike(KernelContext& c) {
  const Tensor& x = Operand(c, 0);
  Uniforms(c, DTypeIn(c, "dtype", x.dtype()), x.shape());
}

void RandomNormalLike(KernelContext& c) {
  const Tensor& x = Operand(c, 0);
  Normals(c, DTypeIn(c, "dtype", x.dtype()), x.shape());
}

// y[i] = 1 with probability x[i], else 0
void Bernoulli(KernelContext& c) {
  const Tensor& x = Operand(c, 0);
  uint64_t seed = SeedOf(c);
  Tensor p = ConvertTo(x, DType::kDouble);
  const double* chance = p.data<double>();
  Generate(c, DTypeIn(c, "dtype", x.dtype()), x.shape(), [=](int64_t i) {
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
