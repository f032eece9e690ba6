// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <vector>

#include "base/check.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

Tensor Squared(Tensor t) {
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<double>()[i] *= t.data<double>()[i];
  }
  return t;
}

struct Moments {
  double mean, variance;
};

// Mean and population variance of the elements that `group` maps to the same
// key.
std::map<int64_t, Moments> MomentsBy(
    const Tensor& x, const std::function<int64_t(int64_t)>& group) {
  std::map<int64_t, std::vector<double>> members;
  for (int64_t i = 0; i < x.size(); ++i) {
    members[group(i)].push_back(DoubleAt(x, i));
  }
  std::map<int64_t, Moments> moments;
  for (const auto& [key, values] : members) {
    double mean = 0, variance = 0;
    auto n = static_cast<double>(values.size());
    for (double v : values) mean += v / n;
    for (double v : values) variance += (v - mean) * (v - mean) / n;
    moments[key] = {mean, variance};
  }
  return moments;
}

const float kChannelEpsilon = 1e-3f;

// x is (batch, channels, inner); elements of a channel: i / inner % channels.
void ExpectNormalized(const Tensor& y, const Tensor& x, int64_t channels,
                      int64_t inner, const Tensor& scale, const Tensor& bias,
                      const std::function<Moments(int64_t)>& moments) {
  ASSERT_EQ(y.shape(), x.shape());
  double bound = y.dtype() == DType::kDouble ? 1e-13 : 2e-5;
  for (int64_t i = 0; i < x.size(); ++i) {
    int64_t c = i / inner % channels;
    Moments m = moments(i);
    double want = (DoubleAt(x, i) - m.mean) /
                      std::sqrt(m.variance + double{kChannelEpsilon}) *
                      DoubleAt(scale, c) +
                  DoubleAt(bias, c);
    ASSERT_NEAR(DoubleAt(y, i), want, bound);
  }
}

TEST(BatchNorm, InferenceAndTraining) {
  for (const Shape& shape :
       {Shape{6, 4, 5, 7}, Shape{40, 4}, Shape{2, 4, 40}}) {
    int64_t inner = NumElements(shape) / (shape[0] * 4);
    Tensor x = RandomShifted(shape, 1);
    Tensor scale = RandomShifted({4}, 2), bias = RandomShifted({4}, 3);
    Tensor mean = RandomShifted({4}, 4),
           variance = Squared(RandomShifted({4}, 5));
    std::vector<Tensor> inputs = {x, scale, bias, mean, variance};
    auto channel = [&](int64_t i) { return i / inner % 4; };

    Tensor y = RunNode("BatchNormalization", inputs,
                       {{"epsilon", kChannelEpsilon}})[0];
    ExpectNormalized(y, x, 4, inner, scale, bias, [&](int64_t i) {
      return Moments{DoubleAt(mean, channel(i)),
                     DoubleAt(variance, channel(i))};
    });

    auto batch = MomentsBy(x, channel);
    Attributes training = {{"epsilon", kChannelEpsilon},
                           {"momentum", 0.75f},
                           {"training_mode", int64_t{1}}};
    auto z = RunNode("BatchNormalization", inputs, training, 3);
    ExpectNormalized(z[0], x, 4, inner, scale, bias,
                     [&](int64_t i) { return batch[channel(i)]; });
    for (int64_t c = 0; c < 4; ++c) {
      EXPECT_NEAR(DoubleAt(z[1], c),
                  0.75 * DoubleAt(mean, c) + 0.25 * batch[c].mean, 1e-13);
      EXPECT_NEAR(DoubleAt(z[2], c),
                  0.75 * DoubleAt(variance, c) + 0.25 * batch[c].variance,
                  1e-13);
    }
    for (Tensor& t : inputs) t = ConvertTo(t, DType::kFloat);
    auto f = RunNode("BatchNormalization", inputs, training, 3);
    EXPECT_EQ(f[1].dtype(), DType::kFloat);
    ExpectNormalized(f[0], inputs[0], 4, inner, scale, bias,
                     [&](int64_t i) { return batch[channel(i)]; });
    inputs[3] = Tensor::Zeros(DType::kFloat, {3});
    EXPECT_THROW(RunNode("BatchNormalization", inputs), Error);
  }
}

TEST(GroupNorm, InstancesAndGroups) {
  Tensor x = RandomShifted({3, 6, 5, 2}, 1);
  Tensor scale = RandomShifted({6}, 2), bias = RandomShifted({6}, 3);
  auto instance = MomentsBy(x, [](int64_t i) { return i / 10; });
  Tensor y = RunNode("InstanceNormalization", {x, scale, bias},
                     {{"epsilon", kChannelEpsilon}})[0];
  ExpectNormalized(y, x, 6, 10, scale, bias,
                   [&](int64_t i) { return instance[i / 10]; });
  auto group = MomentsBy(x, [](int64_t i) { return i / 30; });
  Attributes at = {{"epsilon", kChannelEpsilon}, {"num_groups", int64_t{2}}};
  y = RunNode("GroupNormalization", {x, scale, bias}, at)[0];
  ExpectNormalized(y, x, 6, 10, scale, bias,
                   [&](int64_t i) { return group[i / 30]; });
  at["num_groups"] = int64_t{4};
  EXPECT_THROW(RunNode("GroupNormalization", {x, scale, bias}, at), Error);
  EXPECT_THROW(RunNode("GroupNormalization", {x, scale, bias}), Error);
}

TEST(LpNorm, BothNormsAlongAnyAxis) {
  Tensor x = Tensor::From<float>({2, 2}, std::vector<float>{3, -4, 6, 8});
  auto run = [&](int64_t axis, int64_t p) {
    Tensor y = RunNode("LpNormalization", {x}, {{"axis", axis}, {"p", p}})[0];
    return std::vector<double>{DoubleAt(y, 0), DoubleAt(y, 1), DoubleAt(y, 2),
                               DoubleAt(y, 3)};
  };
  auto f = [](double v) { return static_cast<double>(static_cast<float>(v)); };
  EXPECT_EQ(run(-1, 2), (std::vector<double>{f(0.6), f(-0.8), f(0.6), f(0.8)}));
  EXPECT_EQ(run(0, 1), (std::vector<double>{f(1.0 / 3), f(-1.0 / 3), f(2.0 / 3),
                                            f(2.0 / 3)}));
  EXPECT_THROW(run(0, 3), Error);
  EXPECT_THROW(run(2, 2), Error);
}

TEST(MeanVarianceNorm, OverAnyAxes) {
  Tensor x = RandomShifted({3, 4, 5, 2}, 1);
  auto expect = [&](Attributes at, const std::function<int64_t(int64_t)>& key) {
    Tensor y = RunNode("MeanVarianceNormalization", {x}, at)[0];
    auto moments = MomentsBy(x, key);
    for (int64_t i = 0; i < x.size(); ++i) {
      Moments m = moments[key(i)];
      ASSERT_NEAR(DoubleAt(y, i),
                  (DoubleAt(x, i) - m.mean) / (std::sqrt(m.variance) + 1e-9),
                  1e-13);
    }
  };
  expect({}, [](int64_t i) { return i / 10 % 4; });
  expect({{"axes", std::vector<int64_t>{1, -1}}},
         [](int64_t i) { return i / 40 * 5 + i / 2 % 5; });
  EXPECT_THROW(RunNode("MeanVarianceNormalization", {RandomShifted({2, 2}, 1)}),
               Error);
}

TEST(Lrn, SumsOverNeighboringChannels) {
  Tensor x = RandomShifted({2, 5, 3}, 1);
  for (int64_t size : {1, 2, 3, 20}) {
    Tensor y = RunNode(
        "LRN", {x},
        {{"size", size}, {"alpha", 0.5f}, {"beta", 0.25f}, {"bias", 2.0f}})[0];
    for (int64_t i = 0; i < x.size(); ++i) {
      int64_t c = i / 3 % 5;
      double square = 0;
      for (int64_t k = 0; k < 5; ++k) {
        bool below = k >= c - (size - 1) / 2;
        bool above = k <= c + size / 2;  // ceil((size - 1) / 2)
        double v = DoubleAt(x, i + (k - c) * 3);
        if (below && above) square += v * v;
      }
      double want =
          DoubleAt(x, i) /
          std::pow(2 + 0.5 / static_cast<double>(size) * square, 0.25);
      ASSERT_NEAR(DoubleAt(y, i), want, 1e-14);
    }
  }
  EXPECT_THROW(RunNode("LRN", {x}), Error);
}

}  // namespace
}  // namespace onnx_fp8
