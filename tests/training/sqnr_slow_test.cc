// SPDX-License-Identifier: Apache-2.0
//
// SQNR of LLaMA's feed-forward: the noise of every cast, as its format makes
// it, is carried to the outputs by the rules for independent errors.
#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/sqnr.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kTokens = 512, kModelDim = 512, kHiddenDim = 1024;
// In dB. A missing cast, or one too many, is worth 0.3 and more. FLOOR
// saturates, which is no independent error.
constexpr double kTolerance = 0.15, kFloorTolerance = 0.45;

using Samples = std::vector<double>;

Samples Map(const Samples& x, double (*f)(double)) {
  Samples y(x.size());
  std::ranges::transform(x, y.begin(), f);
  return y;
}

Samples operator*(const Samples& x, const Samples& y) {
  Samples z(x.size());
  std::ranges::transform(x, y, z.begin(), std::multiplies<>());
  return z;
}

double Power(const Samples& x) {
  double sum = 0;
  for (double v : x) sum += v * v;
  return sum / static_cast<double>(x.size());
}

double Sigmoid(double a) { return 1 / (1 + std::exp(-a)); }
double Silu(double a) { return a * Sigmoid(a); }
double Silu1(double a) {
  double s = Sigmoid(a);
  return s + a * s * (1 - s);
}
double Silu2(double a) {
  double s = Sigmoid(a);
  return s * (1 - s) * (2 + a * (1 - 2 * s));
}

Samples Normal(uint64_t seed, double deviation) {
  Tensor t = RandomNormal({1 << 16}, seed);
  Samples x(t.data<float>(), t.data<float>() + t.size());
  for (double& v : x) v *= deviation;
  return x;
}

Samples Uniform(uint64_t seed, double bound) {
  Samples x(1 << 16);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = bound * (2 * RandomUniform(seed, i) - 1);
  }
  return x;
}

// Samples that share a scale; a row has `length`.
size_t Group(const OperandRecipe& o, int64_t length) {
  if (o.granularity == Granularity::kTensor) return size_t{1} << 16;
  if (o.granularity == Granularity::kRow) return static_cast<size_t>(length);
  return static_cast<size_t>(o.square ? o.block * o.block : o.block);
}

double Scale(const OperandRecipe& o, double amax) {
  double scale = amax / Float8Max(o.dtype);
  switch (o.rounding) {
    case ScaleRounding::kNone:
      return scale;
    case ScaleRounding::kPowerOfTwo:
      return std::exp2(std::ceil(std::log2(scale)));
    case ScaleRounding::kFloor:
      return std::exp2(std::floor(std::log2(amax)) -
                       std::floor(std::log2(Float8Max(o.dtype))));
  }
  return 0;
}

// Power of the loss from a cast of `x`, relative to the power of `x`.
double Cast(const Samples& x, const OperandRecipe& o, int64_t length) {
  if (o.high_precision) return 0;
  size_t group = Group(o, length);
  double noise = 0;
  for (size_t begin = 0; begin < x.size(); begin += group) {
    std::span part(x.data() + begin, std::min(group, x.size() - begin));
    double amax = 0;
    for (double v : part) amax = std::max(amax, std::fabs(v));
    double scale = Scale(o, amax);
    for (double v : part) {
      auto scaled = static_cast<float>(v / scale);
      double back =
          scale * (o.dtype == DType::kE4M3 ? Decode(EncodeE4M3(scaled))
                                           : Decode(EncodeE5M2(scaled)));
      noise += (v - back) * (v - back);
    }
  }
  return noise / static_cast<double>(x.size()) / Power(x);
}

// The casts for wgrad sum over tokens. Copies that are made from a first copy
// whose scales are no powers of two are rounded twice.
double WgradCast(const Samples& x, const OperandRecipe& o,
                 Transposition transposition) {
  bool twice = transposition == Transposition::kRequantize &&
               o.granularity != Granularity::kTensor && !o.square &&
               o.rounding == ScaleRounding::kNone;
  return Cast(x, o, kTokens) * (twice ? 2 : 1);
}

// The relative loss of each result. h = silu(a) b, y = h w2ᵀ with a = x w1ᵀ, b
// = x w3ᵀ; gh = g w2 and so on.
StepSqnr Predict(const Recipe& r) {
  double deviation = std::sqrt(1.0 / 3);  // of x w1ᵀ, w1 within ±1/√K
  Samples x = Normal(1, 1), g = Normal(2, 1), gh = Normal(3, deviation);
  Samples a = Normal(4, deviation), b = Normal(5, deviation);
  Samples w = Uniform(6, 1 / std::sqrt(static_cast<double>(kModelDim)));
  Samples w2 = Uniform(7, 1 / std::sqrt(static_cast<double>(kHiddenDim)));
  Samples silu = Map(a, Silu), silu1 = Map(a, Silu1), silu2 = Map(a, Silu2);
  Samples h = silu * b, ga = gh * b * silu1, gb = gh * silu;
  // An error of `a` becomes one of f(a) by its derivative.
  double through_silu = Power(a) * Power(silu1) / Power(silu);
  double through_silu1 = Power(a) * Power(silu2) / Power(silu1);

  double in_a =
      Cast(x, r[Use::kInput], kModelDim) + Cast(w, r[Use::kWeight], kModelDim);
  double in_h = in_a * through_silu + in_a;
  double in_y = in_h + Cast(h, r[Use::kInput], kHiddenDim) +
                Cast(w2, r[Use::kWeight], kHiddenDim);
  double in_gh = Cast(g, r[Use::kGradOutput], kModelDim) +
                 Cast(w2, r[Use::kWeightForDgrad], kModelDim);
  double in_ga = in_gh + in_a + in_a * through_silu1;
  double in_gb = in_gh + in_a * through_silu;
  double dgrad = Cast(w, r[Use::kWeightForDgrad], kHiddenDim);
  double dx_a = in_ga + Cast(ga, r[Use::kGradOutput], kHiddenDim) + dgrad;
  double dx_b = in_gb + Cast(gb, r[Use::kGradOutput], kHiddenDim) + dgrad;
  double in_dx =
      (Power(ga) * dx_a + Power(gb) * dx_b) / (Power(ga) + Power(gb));
  auto wgrad = [&](const Samples& grad, const Samples& input) {
    return WgradCast(grad, r[Use::kGradOutputForWgrad], r.transposition) +
           WgradCast(input, r[Use::kInputForWgrad], r.transposition);
  };
  auto decibel = [](double noise) { return -10 * std::log10(noise); };
  return {decibel(in_y),
          decibel(in_dx),
          {{"w1", decibel(in_ga + wgrad(ga, x))},
           {"w2", decibel(in_h + wgrad(g, h))},
           {"w3", decibel(in_gb + wgrad(gb, x))}}};
}

class FeedForwardSqnr : public testing::TestWithParam<std::string> {};

TEST_P(FeedForwardSqnr, IsThatOfItsCasts) {
  TempDir dir;
  std::string model = WriteFeedForward(dir, kTokens, kModelDim, kHiddenDim);
  auto batch = [&](uint64_t seed) -> TensorMap {
    return {{"x", RandomNormal({kTokens, kModelDim}, seed)},
            {"g", RandomNormal({kTokens, kModelDim}, seed + 100)}};
  };
  GradientResult exact = RunStep(model, {"off"}, batch(3));
  SqnrRun run = {GetParam(), {batch(10), batch(11)}};
  StepSqnr got = CompareSteps(exact, RunStep(model, run, batch(3)));
  Recipe recipe = ParseRecipe(GetParam());
  StepSqnr want = Predict(recipe);
  bool floor = recipe[Use::kInput].rounding == ScaleRounding::kFloor;
  double tolerance = floor ? kFloorTolerance : kTolerance;
  EXPECT_NEAR(got.y, want.y, tolerance);
  EXPECT_NEAR(got.dx, want.dx, tolerance);
  for (const auto& [name, figure] : want.dw) {
    EXPECT_NEAR(got.dw.at(name), figure, tolerance) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Recipes, FeedForwardSqnr,
                         testing::Values("tensorwise", "delayed", "static",
                                         "rowwise", "rowwise_with_gw_hp",
                                         "blockwise", "blockwise,tr:requantize",
                                         "blockwise,round:p2", "mxfp8",
                                         "mxfp8,round:floor"),
                         [](const auto& info) {
                           return RecipeTestName(info.param);
                         });

}  // namespace
}  // namespace onnx_fp8
