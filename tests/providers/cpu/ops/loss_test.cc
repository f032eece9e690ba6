// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {
namespace {

const char kLoss[] = "SoftmaxCrossEntropyLoss";
const char kGrad[] = "SoftmaxCrossEntropyGrad";
const Attributes kIgnore = {{"ignore_index", int64_t{-100}}};

// Every third sample is ignored.
Tensor Labels(const Shape& shape, int64_t classes) {
  Tensor labels = Tensor::Allocate(DType::kInt64, shape);
  for (int64_t i = 0; i < labels.size(); ++i) {
    labels.data<int64_t>()[i] = i % 3 == 1 ? -100 : i * 7919 % classes;
  }
  return labels;
}

// Computed in double, element by element: (N, C, D).
struct Truth {
  double loss = 0;
  std::vector<double> log_prob, gradient;
};

Truth TruthOf(const Tensor& x, const Tensor& labels, double dloss) {
  int64_t n = x.dim(0), c = x.dim(1), d = n > 0 ? labels.size() / n : 0;
  Truth truth;
  truth.log_prob.resize(static_cast<size_t>(x.size()));
  truth.gradient.resize(static_cast<size_t>(x.size()));
  double count = 0;
  for (int64_t i = 0; i < n * d; ++i) count += IntAt(labels, i) != -100;
  for (int64_t i = 0; i < n * d; ++i) {
    int64_t label = IntAt(labels, i);
    auto at = [&](int64_t k) { return (i / d * c + k) * d + i % d; };
    double sum = 0;
    for (int64_t k = 0; k < c; ++k) sum += std::exp(DoubleAt(x, at(k)));
    for (int64_t k = 0; k < c; ++k) {
      size_t j = static_cast<size_t>(at(k));
      truth.log_prob[j] = DoubleAt(x, at(k)) - std::log(sum);
      double miss = std::exp(truth.log_prob[j]) - (k == label ? 1 : 0);
      truth.gradient[j] = label == -100 ? 0 : miss * dloss / count;
      if (k == label) truth.loss -= truth.log_prob[j] / count;
    }
  }
  return truth;
}

void ExpectNear(const Tensor& got, const std::vector<double>& want,
                double tolerance) {
  ASSERT_EQ(static_cast<size_t>(got.size()), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(DoubleAt(got, static_cast<int64_t>(i)), want[i], tolerance)
        << i;
  }
}

TEST(LossKernels, AgreeWithDoubleOverShapes) {
  const std::vector<Shape> shapes = {{1, 1},    {5, 3},       {64, 5003},
                                     {3, 7, 5}, {2, 130, 33}, {4, 3, 2, 5},
                                     {20000, 2}};
  for (const Shape& shape : shapes) {
    Shape places = shape;
    places.erase(places.begin() + 1);
    Tensor x = RandomNormal(shape, 1), labels = Labels(places, shape[1]);
    Truth truth = TruthOf(x, labels, 0.5);
    auto results = RunNode(kLoss, {x, labels}, kIgnore, 2);
    EXPECT_EQ(results[0].shape(), Shape{});
    ExpectNear(results[0], {truth.loss}, 2e-6 * std::max(1.0, truth.loss));
    ExpectNear(results[1], truth.log_prob, 4e-6);
    Tensor dx = RunNode1(kGrad, {Tensor::Scalar(0.5f), results[1], labels},
                         kIgnore, kDomain);
    ExpectNear(dx, truth.gradient, 1e-6);
  }
}

TEST(LossKernels, DoNotDependOnTheNumberOfThreads) {
  Tensor x = RandomNormal({300, 257}, 2), labels = Labels({300}, 257);
  int threads = NumThreads();
  SetNumThreads(1);
  auto one = RunNode(kLoss, {x, labels}, kIgnore, 2);
  SetNumThreads(4);
  auto four = RunNode(kLoss, {x, labels}, kIgnore, 2);
  SetNumThreads(threads);
  EXPECT_TRUE(Identical(one[0], four[0]));
  EXPECT_TRUE(Identical(one[1], four[1]));
}

TEST(LossKernels, LargeScoresDoNotOverflow) {
  Tensor x = Floats({2, 2}, {1000, 990, -2000, -2000});
  Tensor labels = Tensor::Ints({1, 0});
  auto results = RunNode(kLoss, {x, labels}, {}, 2);
  ExpectNear(results[1], {-4.5398e-05, -10.0000454, -0.6931472, -0.6931472},
             1e-6);
}

TEST(LossKernels, NoSampleThatCounts) {
  Tensor x = Floats({2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor none = Tensor::Ints({-100, -100});
  EXPECT_TRUE(std::isnan(DoubleAt(RunNode1(kLoss, {x, none}, kIgnore), 0)));
  Attributes sum = kIgnore;
  sum["reduction"] = std::string("sum");
  EXPECT_EQ(DoubleAt(RunNode1(kLoss, {x, none}, sum), 0), 0);
  Tensor dx =
      RunNode1(kGrad, {Tensor::Scalar(1.0f), x, none}, kIgnore, kDomain);
  ExpectNear(dx, {0, 0, 0, 0, 0, 0}, 0);
  Tensor empty = Tensor::Zeros(DType::kFloat, {0, 3});
  EXPECT_EQ(RunNode1(kGrad, {Tensor::Scalar(1.0f), empty, Tensor::Ints({})},
                     kIgnore, kDomain)
                .size(),
            0);
}

// The content of an ignored sample does not matter, not even NaN.
TEST(LossKernels, IgnoredSamplesMayHoldAnything) {
  Tensor x = Floats({2, 2}, {NAN, INFINITY, 1, 1});
  Tensor labels = Tensor::Ints({-100, 0});
  auto results = RunNode(kLoss, {x, labels}, kIgnore, 2);
  EXPECT_NEAR(DoubleAt(results[0], 0), std::log(2.0), 1e-7);
  Tensor dx = RunNode1(kGrad, {Tensor::Scalar(1.0f), results[1], labels},
                       kIgnore, kDomain);
  ExpectNear(dx, {0, 0, -0.5, 0.5}, 1e-7);
}

TEST(LossKernels, SixteenBitScores) {
  Tensor x = RandomNormal({4, 5}, 3), labels = Labels({4}, 5);
  Truth truth = TruthOf(x, labels, 1);
  for (DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    Tensor loss = RunNode1(kLoss, {ConvertTo(x, dtype), labels}, kIgnore);
    EXPECT_EQ(loss.dtype(), dtype);
    ExpectNear(loss, {truth.loss}, 0.02);
  }
}

TEST(LossKernels, RefuseWhatDoesNotFit) {
  Tensor x = Tensor::Zeros(DType::kFloat, {2, 3});
  Tensor ok = Tensor::Ints({0, 1});
  EXPECT_EQ(ErrorOf(kLoss, {x, Tensor::Ints({0, 3})}),
            "[SoftmaxCrossEntropyLoss n] expected labels in 0 … 2, got 3");
  EXPECT_EQ(ErrorOf(kLoss, {x, Tensor::Ints({0, -100})}),
            "[SoftmaxCrossEntropyLoss n] expected labels in 0 … 2, got -100");
  EXPECT_EQ(ErrorOf(kLoss, {x, Tensor::Ints({0, 1, 2})}),
            "[SoftmaxCrossEntropyLoss n] expected labels of shape [2], got "
            "[3]");
  EXPECT_EQ(ErrorOf(kLoss, {x, Floats({2}, {0, 1})}),
            "[SoftmaxCrossEntropyLoss n] expected int32 or int64 labels, got "
            "float");
  EXPECT_EQ(ErrorOf(kLoss, {Floats({2}, {0, 1}), ok}),
            "[SoftmaxCrossEntropyLoss n] expected scores of shape (N, C, …), "
            "got [2]");
  EXPECT_EQ(ErrorOf(kLoss, {x, ok, Floats({2}, {1, 1})}),
            "[SoftmaxCrossEntropyLoss n] expected one weight for each of 3 "
            "classes, got float [2]");
  EXPECT_EQ(ErrorOf(kLoss, {x, ok}, {{"reduction", std::string("max")}}),
            "[SoftmaxCrossEntropyLoss n] expected reduction none, sum or "
            "mean, got max");
  EXPECT_EQ(ErrorOf("NegativeLogLikelihoodLoss", {x, Tensor::Ints({5, 0})}),
            "[NegativeLogLikelihoodLoss n] expected labels in 0 … 2, got 5");
  EXPECT_NE(ErrorOf(kGrad, {x, x, ok}, kIgnore, 1, kDomain), "");
}

// Ours: the loss and lse from one op, the gradient from the scores.
TEST(Loss, CrossEntropyAndItsGradient) {
  for (Shape shape : {Shape{1, 1}, Shape{7, 3}, Shape{40, 1000}, Shape{0, 4}}) {
    for (DType dtype : {DType::kFloat, DType::kDouble}) {
      Tensor x = ConvertTo(RandomNormal(shape, 3), dtype);
      Tensor labels = Labels({shape[0]}, shape[1]);
      auto y = RunNode("CrossEntropy", {x, labels}, kIgnore, 2, kDomain);
      Truth truth = TruthOf(x, labels, 0.7);
      double tolerance = dtype == DType::kDouble ? 1e-12 : 4e-6;
      if (shape[0] > 0) {
        EXPECT_NEAR(DoubleAt(y[0], 0), truth.loss, tolerance);
      }
      for (int64_t i = 0; i < shape[0]; ++i) {
        double lse = DoubleAt(x, i * shape[1]) -
                     truth.log_prob[static_cast<size_t>(i * shape[1])];
        ASSERT_NEAR(DoubleAt(y[1], i), lse, tolerance);
      }
      Tensor dloss = ConvertTo(Tensor::Scalar(0.7f), dtype);
      Truth of_float = TruthOf(x, labels, DoubleAt(dloss, 0));
      Tensor dx = RunNode("CrossEntropyGrad", {dloss, x, y[1], labels}, kIgnore,
                          1, kDomain)[0];
      ExpectNear(dx, of_float.gradient, tolerance / 4);
    }
  }
}

TEST(Loss, CrossEntropyOfScoresFarApart) {
  Tensor x = Floats({2, 3}, {1e4f, 0, -1e4f, 5, 5, 5});
  Tensor labels = Tensor::Ints({1, 2});
  auto y = RunNode("CrossEntropy", {x, labels}, kIgnore, 2, kDomain);
  EXPECT_NEAR(DoubleAt(y[0], 0), (1e4 + std::log(3.0)) / 2, 1e-3);
  EXPECT_EQ(DoubleAt(y[1], 0), 1e4);
  EXPECT_EQ(
      ErrorOf("CrossEntropy", {x, Tensor::Ints({0, 3})}, kIgnore, 2, kDomain)
          .find("[onnx_fp8.CrossEntropy n] expected labels in 0 … 2 or -100"),
      0u);
}

// One node gives the bits of both.
TEST(Loss, CrossEntropyWithItsGradient) {
  for (Shape shape : {Shape{1, 1}, Shape{7, 3}, Shape{40, 1000}, Shape{0, 4}}) {
    for (DType dtype : {DType::kFloat, DType::kDouble}) {
      Tensor x = ConvertTo(RandomNormal(shape, 3), dtype);
      Tensor labels = Labels({shape[0]}, shape[1]);
      Tensor dloss = ConvertTo(Tensor::Scalar(0.7f), dtype);
      auto y = RunNode("CrossEntropy", {x, labels}, kIgnore, 2, kDomain);
      Tensor dx = RunNode("CrossEntropyGrad", {dloss, x, y[1], labels}, kIgnore,
                          1, kDomain)[0];
      auto both = RunNode("CrossEntropyWithGrad", {dloss, x, labels}, kIgnore,
                          2, kDomain);
      EXPECT_TRUE(Identical(both[0], y[0]));
      EXPECT_TRUE(Identical(both[1], dx));
    }
  }
  Tensor x = Floats({1, 3}, {0, 1, 2});
  EXPECT_EQ(
      ErrorOf("CrossEntropyWithGrad",
              {Tensor::Scalar(1.0f), x, Tensor::Ints({3})}, kIgnore, 2, kDomain)
          .find("[onnx_fp8.CrossEntropyWithGrad n] expected labels in 0 … 2"),
      0u);
}

}  // namespace
}  // namespace onnx_fp8
