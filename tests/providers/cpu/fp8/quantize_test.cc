// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "base/check.h"
#include "onnx_fp8/float8.h"
#include "tests/providers/cpu/fp8/quantization.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/providers/cpu/special_values.h"

namespace onnx_fp8 {
namespace {

std::vector<float> Values(const Tensor& t) {
  auto v = t.values<float>();
  return {v.begin(), v.end()};
}

struct QuantizeResult {
  Tensor q;
  float scale, amax;
};

QuantizeResult RunQuantize(const Tensor& x, DType format,
                           const float* scale_in = nullptr) {
  std::vector<Tensor> in = {x};
  if (scale_in) in.push_back(Tensor::Scalar(*scale_in));
  auto out = RunNode(scale_in ? "QuantizeWith" : "QuantizeTensor", in,
                     QuantizeTo(format), 3, kDomain);
  return {out[0], *out[1].data<float>(), *out[2].data<float>()};
}

void ExpectCodes(const QuantizeResult& r, const Tensor& x, float factor) {
  ASSERT_EQ(r.q.shape(), x.shape());
  for (int64_t i = 0; i < x.size(); ++i) {
    float y = x.data<float>()[i] * factor;
    uint8_t code = static_cast<const uint8_t*>(r.q.raw())[i];
    EXPECT_EQ(code, r.q.dtype() == DType::kE4M3 ? EncodeE4M3(y).bits
                                                : EncodeE5M2(y).bits);
  }
}

TEST(QuantizeTensor, FollowsItsFormula) {
  for (DType format : {DType::kE4M3, DType::kE5M2}) {
    for (const Shape& shape : {Shape{}, Shape{7}, Shape{3, 5, 33}, Shape{0}}) {
      Tensor x = RandomNormal(shape, 5);
      double a = 0;
      for (float v : x.values<float>()) a = std::max(a, std::fabs(double{v}));
      QuantizeResult r = RunQuantize(x, format);
      auto factor =
          static_cast<float>(Float8Max(format) / std::max(a, double{1e-12f}));
      EXPECT_EQ(r.q.dtype(), format);
      EXPECT_EQ(r.amax, static_cast<float>(a));
      EXPECT_EQ(r.scale, 1.0f / factor);
      ExpectCodes(r, x, factor);
    }
  }
}

TEST(QuantizeTensor, NonFiniteValuesAreFlaggedAndLeaveTheScaleAlone) {
  for (float bad : {kInfinity, -kInfinity, kNaN}) {
    Tensor x = Vector<float>({1.0f, bad, -14.0f});
    QuantizeResult r = RunQuantize(x, DType::kE4M3);
    EXPECT_EQ(r.amax, kInfinity);
    EXPECT_EQ(r.scale, 1.0f / 32.0f);
    ExpectCodes(r, x, 32.0f);
  }
  QuantizeResult none = RunQuantize(Vector<float>({kNaN}), DType::kE4M3);
  EXPECT_EQ(none.amax, kInfinity);
  QuantizeResult zeros =
      RunQuantize(Vector<float>({0.0f, -0.0f}), DType::kE4M3);
  EXPECT_EQ(zeros.amax, 0.0f);
  EXPECT_EQ(none.scale, zeros.scale);
  EXPECT_GT(zeros.scale, 2e-15f);  // 1e-12 / 448
  EXPECT_LT(zeros.scale, 3e-15f);
}

TEST(QuantizeWith, UsesTheGivenScaleOrItsOwn) {
  Tensor x = RandomNormal({40, 9}, 7);
  for (DType format : {DType::kE4M3, DType::kE5M2}) {
    float zero = 0.0f, third = 1.0f / 3;
    QuantizeResult own = RunQuantize(x, format);
    QuantizeResult first = RunQuantize(x, format, &zero);
    EXPECT_TRUE(Identical(own.q, first.q));
    EXPECT_EQ(own.scale, first.scale);
    EXPECT_EQ(own.amax, first.amax);
    QuantizeResult given = RunQuantize(x, format, &third);
    EXPECT_EQ(given.scale, third);
    EXPECT_EQ(given.amax, own.amax);
    ExpectCodes(given, x, 1.0f / third);
  }
}

// Two parts have the bytes of the whole.
TEST(QuantizeAmax, PartsHaveTheBytesOfTheWhole) {
  Tensor x = RandomNormal({6, 9}, 3);
  Tensor top = RandomNormal({4, 9}, 1), end = RandomNormal({2, 9}, 1);
  std::copy_n(x.data<float>(), top.size(), top.data<float>());
  std::copy_n(x.data<float>() + top.size(), end.size(), end.data<float>());
  for (DType format : {DType::kE4M3, DType::kE5M2}) {
    for (float scale_in : {0.0f, 0.3f}) {
      QuantizeResult whole = RunQuantize(x, format, &scale_in);
      float amax = 0;
      for (const Tensor& part : {top, end}) {
        auto own = RunNode("Amax", {part}, {}, 1, kDomain)[0];
        amax = std::max(amax, *own.data<float>());
      }
      EXPECT_EQ(amax, whole.amax);
      const auto* code = static_cast<const uint8_t*>(whole.q.raw());
      for (const Tensor& part : {top, end}) {
        auto made =
            RunNode("QuantizeAmax",
                    {part, Tensor::Scalar(amax), Tensor::Scalar(scale_in)},
                    QuantizeTo(format), 2, kDomain);
        EXPECT_EQ(*made[1].data<float>(), whole.scale);
        const auto* mine = static_cast<const uint8_t*>(made[0].raw());
        for (int64_t i = 0; i < part.size(); ++i) EXPECT_EQ(mine[i], *code++);
      }
    }
  }
}

TEST(Quantize, RefusesWhatDoesNotFit) {
  Tensor x = RandomNormal({4}, 1);
  auto run = [&](const std::vector<Tensor>& in, Attributes attributes) {
    RunNode(in.size() == 2 ? "QuantizeWith" : "QuantizeTensor", in,
            std::move(attributes), 3, kDomain);
  };
  EXPECT_THROW(run({ConvertTo(x, DType::kDouble)}, QuantizeTo(DType::kE4M3)),
               Error);
  EXPECT_THROW(run({x}, {}), Error);
  EXPECT_THROW(run({x}, {{"to", int64_t{1}}, {"q_max", 448.0f}}), Error);
  EXPECT_THROW(run({x}, {{"to", int64_t{17}}, {"q_max", 0.0f}}), Error);
  EXPECT_THROW(run({x, x}, QuantizeTo(DType::kE4M3)), Error);
}

// Signal to noise of a cast of normal data, in decibels: torchao's measure.
TEST(QuantizeTensor, KeepsTheSignalOfNormalData) {
  Tensor x = RandomNormal({512, 512}, 11);
  QuantizeResult r = RunQuantize(x, DType::kE4M3);
  double signal = 0, noise = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    double v = DoubleAt(x, i), d = DoubleAt(r.q, i) * r.scale - v;
    signal += v * v;
    noise += d * d;
  }
  double decibels = 10 * std::log10(signal / noise);
  EXPECT_GE(decibels, 31.0);
  EXPECT_LE(decibels, 32.5);
}

struct Updated {
  std::vector<float> history, scale;
};

Updated Update(const std::vector<float>& amax, std::vector<float> history,
               const std::vector<float>& scale, bool most_recent = false,
               float margin = 0, bool ok = true) {
  auto n = static_cast<int64_t>(amax.size());
  auto h = static_cast<int64_t>(history.size()) / n;
  Tensor q_max = Vector(std::vector<float>(amax.size(), 448.0f));
  auto out = RunNode(
      "UpdateScale",
      {Vector(amax), Tensor::From<float>({h, n}, history), Vector(scale), q_max,
       Tensor::Scalar(ok)},
      {{"most_recent", int64_t{most_recent}}, {"margin", margin}}, 2, kDomain);
  return {Values(out[0]), Values(out[1])};
}

// The case list of TransformerEngine's kernel_bulk, with real = q · scale.
TEST(UpdateScale, RollsAndCountsExactlyTheHistory) {
  // The dropped 9 does not count; the 8 counts once more, then it is dropped.
  Updated r = Update({4}, {9, 8, 2}, {1});
  EXPECT_EQ(r.history, (std::vector<float>{0, 2, 4}));
  EXPECT_EQ(r.scale, std::vector<float>{8.0f / 448});
  r = Update({1}, r.history, r.scale);
  EXPECT_EQ(r.history, (std::vector<float>{0, 4, 1}));
  EXPECT_EQ(r.scale, std::vector<float>{4.0f / 448});
  r = Update({3}, {9, 8, 2}, {1}, true);
  EXPECT_EQ(r.history, (std::vector<float>{0, 2, 3}));
  EXPECT_EQ(r.scale[0], 1.0f / static_cast<float>(448.0 / 3));
}

TEST(UpdateScale, HistoryOfOneIsMostRecent) {
  for (bool most_recent : {false, true}) {
    Updated r = Update({7}, {100}, {1}, most_recent);
    EXPECT_EQ(r.history, std::vector<float>{0});
    EXPECT_EQ(r.scale, std::vector<float>{1.0f / 64});
  }
}

TEST(UpdateScale, ZeroAndNonFiniteSlotsKeepEverything) {
  std::vector<float> history = {1, 2, 3, 4, 5, 6, 7, 8}, scale = {1, 2, 3, 4};
  Updated r = Update({0, kInfinity, kNaN, 7}, history, scale);
  EXPECT_EQ(r.history, (std::vector<float>{1, 2, 3, 0, 5, 6, 7, 7}));
  EXPECT_EQ(r.scale, (std::vector<float>{1, 2, 3, 8.0f / 448}));
  r = Update({1, 2, 3, 4}, history, scale, false, 0, /*ok=*/false);
  EXPECT_EQ(r.history, history);
  EXPECT_EQ(r.scale, scale);
}

TEST(UpdateScale, InfinityInTheWindowFreezesTheScaleUntilItLeaves) {
  for (float bad : {kInfinity, kNaN}) {
    Updated r = Update({4}, {0, 1, bad}, {5});
    EXPECT_EQ(r.scale, std::vector<float>{5});
    r = Update({2}, r.history, r.scale);  // it counts for the last time
    EXPECT_EQ(r.scale, std::vector<float>{5});
    EXPECT_EQ(r.history, (std::vector<float>{0, 4, 2}));
    r = Update({2}, r.history, r.scale);
    EXPECT_EQ(r.scale, std::vector<float>{4.0f / 448});
    EXPECT_EQ(Update({7}, {0, 1, bad}, {5}, true).scale[0], 1.0f / 64);
  }
}

TEST(UpdateScale, MarginAndLowerBound) {
  EXPECT_EQ(Update({7}, {0}, {0}, false, 3).scale[0], 8.0f / 64);
  EXPECT_EQ(Update({7}, {0}, {0}, false, -2).scale[0], 0.25f / 64);
  EXPECT_EQ(Update({1e-40f}, {0}, {1}).scale[0], 0x1p-126f);
  EXPECT_EQ(Update({1e-45f}, {0}, {1}, false, 5).scale[0], 0x1p-126f);
}

TEST(UpdateScale, GivesTheScaleOfQuantizeTensor) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    QuantizeResult r = RunQuantize(RandomNormal({16}, seed), DType::kE4M3);
    EXPECT_EQ(Update({r.amax}, {0, 0}, {0}).scale[0], r.scale);
  }
}

TEST(UpdateScale, RefusesWhatDoesNotFit) {
  Tensor n = Vector<float>({1, 2}), h = RandomNormal({3, 2}, 1);
  Tensor ok = Tensor::Scalar(true);
  auto run = [&](const std::vector<Tensor>& in, float margin = 0) {
    RunNode("UpdateScale", in,
            {{"most_recent", int64_t{0}}, {"margin", margin}}, 2, kDomain);
  };
  run({n, h, n, n, ok});
  EXPECT_THROW(run({n, h, n, n, ok}, 0.5f), Error);
  EXPECT_THROW(run({n, h, n, n, ok}, kNaN), Error);
  EXPECT_THROW(run({n, n, n, n, ok}), Error);
  EXPECT_THROW(run({n, Tensor::Zeros(DType::kFloat, {0, 2}), n, n, ok}), Error);
  EXPECT_THROW(run({n, h, n, h, ok}), Error);
  EXPECT_THROW(run({n, h, n, n, n}), Error);
  EXPECT_THROW(run({ok, h, n, n, ok}), Error);
}

}  // namespace
}  // namespace onnx_fp8
