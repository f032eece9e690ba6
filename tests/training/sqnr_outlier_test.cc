// SPDX-License-Identifier: Apache-2.0
//
// The cost of outliers: elements that share a scale with one are cast with that
// scale, and lose as much as theory says. All others lose nothing.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/sqnr.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kRows = 256, kWidth = 512, kOut = 128;
// The numbers of tokens and channels; the outliers are in one of them.
constexpr int64_t kToken = 77, kChannel = 300;
constexpr double kOutlierTolerance = 0.25;  // dB

// Relative noise of N(0,1), as far as it is below `amax`, in a format with this
// scale.
double CastNoise(DType to, double scale, double amax) {
  double noise = 0;
  constexpr double kStep = 3.77e-4;  // matches no grid
  for (double x = kStep / 2; x < std::min(amax, 8.0); x += kStep) {
    auto scaled = static_cast<float>(x / scale);
    double back = scale * (to == DType::kE4M3 ? Decode(EncodeE4M3(scaled))
                                              : Decode(EncodeE5M2(scaled)));
    noise += std::exp(-x * x / 2) * (x - back) * (x - back);
  }
  return noise * kStep * std::sqrt(2 / std::numbers::pi);
}

// Noise of data whose largest magnitude is `amax`; `p2` rounds it up to a power
// of two.
double NoiseWith(DType to, double amax, bool p2) {
  double scale = amax / Float8Max(to);
  if (p2) scale = std::exp2(std::ceil(std::log2(scale)));
  return CastNoise(to, scale, amax);
}

// Noise of blocks, rows and tensors of N(0,1); their largest element is in that
// range.
double CleanNoise(DType to, bool p2) {
  double sum = 0;
  int count = 0;
  for (double amax = 2.4; amax < 4.6; amax += 0.2, ++count) {
    sum += NoiseWith(to, amax, p2);
  }
  return sum / count;
}

double Decibel(double noise) { return -10 * std::log10(noise); }

TEST(OutlierSqnr, TheoryHasTheFiguresOfTorchao) {
  auto e4m3 = [](double amax) {
    return Decibel(NoiseWith(DType::kE4M3, amax, false));
  };
  EXPECT_NEAR(e4m3(4.5), 31.5, 0.1);
  EXPECT_NEAR(e4m3(1e4), 31.3, 0.1);
  EXPECT_NEAR(e4m3(3e4), 28.0, 0.1);
  EXPECT_NEAR(e4m3(1e5), 18.0, 0.1);
  EXPECT_NEAR(e4m3(1e6), 0.4, 0.1);
  EXPECT_NEAR(Decibel(NoiseWith(DType::kE5M2, 1e6, false)), 25.6, 0.1);
}

// The share of a vector of `length` that shares a scale with one of its
// elements.
struct Kind {
  const char* recipe;
  bool p2;
  int64_t block;  // 0: a row, -1: the tensor
  DType grad = DType::kE4M3;

  double Share(int64_t length) const {
    return block > 0 ? static_cast<double>(block) / static_cast<double>(length)
                     : 1;
  }
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.recipe; }

const Kind kKinds[] = {
    {"tensorwise", false, -1, DType::kE5M2}, {"rowwise", true, 0},
    {"rowwise,round:none", false, 0},        {"blockwise", false, 128},
    {"blockwise,round:p2", true, 128},       {"mxfp8", true, 32},
};

class OutlierSqnr : public testing::TestWithParam<Kind> {
 protected:
  // In dB, if `share` of one operand has a scale for `amax`, and the other
  // operand has the format `other`.
  double Expected(double share, double amax, DType other) {
    bool p2 = GetParam().p2;
    double hit = NoiseWith(DType::kE4M3, amax, p2);
    double clean = CleanNoise(DType::kE4M3, p2);
    return Decibel(share * hit + (1 - share) * clean + CleanNoise(other, p2));
  }

  // Runs a step. The parts of the results that come from the outliers
  // themselves, column kChannel of dw and row kToken of y, are set to 0.
  void Run(const TensorMap& feeds, const Tensor& w) {
    TempDir dir;
    std::string model = WriteLinear(dir, kRows, w);
    GradientResult exact = RunStep(model, {"off"}, feeds);
    GradientResult fp8 = RunStep(model, {GetParam().recipe}, feeds);
    for (GradientResult* result : {&exact, &fp8}) {
      ClearRow(&result->outputs.at("y"));
      ClearColumn(&result->gradients.at("w"));
    }
    got_ = CompareSteps(exact, fp8);
  }

  static void ClearRow(Tensor* t) {
    float* row = t->data<float>() + kToken * t->dim(1);
    std::fill(row, row + t->dim(1), 0.0f);
  }
  static void ClearColumn(Tensor* t) {
    for (int64_t i = 0; i < t->dim(0); ++i) {
      t->data<float>()[i * t->dim(1) + kChannel] = 0;
    }
  }

  StepSqnr got_;
  Tensor x_ = RandomNormal({kRows, kWidth}, 1);
  Tensor g_ = RandomNormal({kRows, kOut}, 2);
  Tensor w_ = RandomNormal({kOut, kWidth}, 3);
};

// amax / σ: harmless for e4m3, torchao's limit, far beyond.
constexpr double kRatios[] = {1e3, 3e4, 2e5};

// One feature is huge in every token. Its weights are 0, so that y shows the
// effect on the others.
TEST_P(OutlierSqnr, OfAChannel) {
  const Kind& kind = GetParam();
  ClearColumn(&w_);
  for (double ratio : kRatios) {
    SCOPED_TRACE(ratio);
    for (int64_t i = 0; i < kRows; ++i) {
      x_.data<float>()[i * kWidth + kChannel] = static_cast<float>(ratio);
    }
    Run({{"x", x_}, {"g", g_}}, w_);
    // Every row of x contains it, so each 1xK scale is for it, and so are some
    // blocks'.
    EXPECT_NEAR(got_.y, Expected(kind.Share(kWidth), ratio, DType::kE4M3),
                kOutlierTolerance);
    // wgrad sums over tokens: columns have scales of their own.
    bool tensor = kind.block < 0;
    EXPECT_NEAR(got_.dw.at("w"), Expected(tensor, ratio, kind.grad),
                kOutlierTolerance);
  }
}

// One token is huge in every feature; the gradient of its output is 0.
TEST_P(OutlierSqnr, OfAToken) {
  const Kind& kind = GetParam();
  ClearRow(&g_);
  for (double ratio : kRatios) {
    SCOPED_TRACE(ratio);
    for (int64_t j = 0; j < kWidth; ++j) {
      x_.data<float>()[kToken * kWidth + j] = static_cast<float>(ratio);
    }
    Run({{"x", x_}, {"g", g_}}, w_);
    bool tensor = kind.block < 0;
    EXPECT_NEAR(got_.y, Expected(tensor, ratio, DType::kE4M3),
                kOutlierTolerance);
    EXPECT_NEAR(got_.dw.at("w"), Expected(kind.Share(kRows), ratio, kind.grad),
                kOutlierTolerance);
  }
}

// One output's gradient is huge; its weights are 0.
TEST(GradientOutlierSqnr, E5M2HoldsWhatE4M3Loses) {
  constexpr double kRatio = 2e5;
  Tensor x = RandomNormal({kRows, kWidth}, 1);
  Tensor g = RandomNormal({kRows, kOut}, 2);
  Tensor w = RandomNormal({kOut, kWidth}, 3);
  for (int64_t i = 0; i < kRows; ++i) g.data<float>()[i * kOut + 5] = kRatio;
  std::fill_n(w.data<float>() + 5 * kWidth, kWidth, 0.0f);
  TempDir dir;
  std::string model = WriteLinear(dir, kRows, w);
  TensorMap feeds = {{"x", x}, {"g", g}};
  GradientResult exact = RunStep(model, {"off"}, feeds);
  double weight = CleanNoise(DType::kE4M3, false);
  for (auto [recipe, to] :
       {std::pair("tensorwise", DType::kE5M2),
        std::pair("tensorwise,go:dyn_ten_e4m3", DType::kE4M3)}) {
    StepSqnr got = CompareSteps(exact, RunStep(model, {recipe}, feeds));
    EXPECT_NEAR(got.dx, Decibel(weight + NoiseWith(to, kRatio, false)),
                kOutlierTolerance)
        << recipe;
  }
}

// The scale comes from earlier steps. A new outlier saturates and spoils
// nothing else; an outlier that is gone spoils the steps that remember it.
TEST(DelayedOutlierSqnr, ComesOneStepLate) {
  constexpr double kRatio = 2e5;
  Tensor x = RandomNormal({kRows, kWidth}, 1);
  Tensor g = RandomNormal({kRows, kOut}, 2);
  Tensor w = RandomNormal({kOut, kWidth}, 3);
  for (int64_t i = 0; i < kOut; ++i) w.data<float>()[i * kWidth + 9] = 0;
  Tensor huge = x.Clone();
  huge.data<float>()[9] = kRatio;
  TempDir dir;
  std::string model = WriteLinear(dir, kRows, w);
  TensorMap with = {{"x", huge}, {"g", g}}, without = {{"x", x}, {"g", g}};
  auto output = [&](const std::vector<TensorMap>& earlier,
                    const TensorMap& feeds) {
    return Sqnr(RunStep(model, {"off"}, feeds).outputs.at("y"),
                RunStep(model, {"delayed", earlier}, feeds).outputs.at("y"));
  };
  double clean = CleanNoise(DType::kE4M3, false);
  EXPECT_NEAR(output({without}, with), Decibel(clean + clean),
              kOutlierTolerance);
  EXPECT_NEAR(output({with, without}, without),
              Decibel(clean + NoiseWith(DType::kE4M3, kRatio, false)),
              kOutlierTolerance);
}

INSTANTIATE_TEST_SUITE_P(Recipes, OutlierSqnr, testing::ValuesIn(kKinds),
                         [](const auto& info) {
                           return RecipeTestName(info.param.recipe);
                         });

}  // namespace
}  // namespace onnx_fp8
