// SPDX-License-Identifier: Apache-2.0
#include "training/step/loss_values.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/check.h"
#include "training/make_provider.h"

namespace onnx_fp8 {
namespace {

class LossValues : public testing::Test {
 protected:
  double Loss(const std::string& kind, const Tensor& y, const Tensor& label) {
    return LossOf({kind}, y, label, *evaluator_);
  }
  int64_t Hits(const std::string& kind, const Tensor& y, const Tensor& label) {
    return CountHits({kind}, y, label, *evaluator_);
  }

  std::unique_ptr<Evaluator> evaluator_ = MakeEvaluator();
};

TEST_F(LossValues, CrossEntropyCountsLabels) {
  Tensor logits = Tensor::From<float>({3, 2}, {0, 0, 1, 3, 100, 0});
  Tensor labels = Tensor::From<int64_t>({3}, {0, 1, -100});
  double expected = std::log(2.0) + std::log1p(std::exp(-2.0));
  EXPECT_NEAR(Loss("cross_entropy", logits, labels), expected / 2, 1e-7);
  EXPECT_EQ(CountLabels({"cross_entropy"}, logits, labels), 2);
  Tensor wrong = Tensor::From<int64_t>({3}, {2, 1, 1});
  EXPECT_THROW(Loss("cross_entropy", logits, wrong), Error);
}

TEST_F(LossValues, MeanSquareAndBinary) {
  Tensor y = Tensor::From<float>({1, 2}, {1, 2});
  Tensor zeros = Tensor::Zeros(DType::kFloat, {1, 2});
  EXPECT_EQ(Loss("mse", y, zeros), 2.5);
  // For this loss, -100 is a number like any other.
  Tensor two = Tensor::From<float>({2}, {-100, 0});
  EXPECT_EQ(CountLabels({"mse"}, two, two), 2);
  Tensor one = Tensor::From<float>({1}, {1});
  Tensor z = Tensor::From<float>({1}, {-800});
  EXPECT_EQ(Loss("bce_with_logits", z, one), 800);
}

// A value of the graph may have the name of the label, and the label a value's
// name.
TEST_F(LossValues, AnyNameOfALabel) {
  Tensor y = Tensor::From<float>({1}, {3});
  Tensor label = Tensor::From<float>({1}, {1});
  for (const char* name : {"output", "loss", "label"}) {
    EXPECT_EQ(LossOf({"mse", name}, y, label, *evaluator_), 4) << name;
  }
}

TEST_F(LossValues, HitsAlongAxis1) {
  // (1, 2, 3): classes 1, 0, 0.
  Tensor logits = Tensor::From<float>({1, 2, 3}, {0, 1, 1, 1, 0, 0});
  for (const Shape& shape : {Shape{1, 3}, Shape{1, 1, 3}}) {
    Tensor labels = Tensor::From<int64_t>(shape, {1, 1, 0});
    EXPECT_EQ(Hits("cross_entropy", logits, labels), 2);
    LossSpec spec{"cross_entropy"};
    spec.ignore_index = 0;
    EXPECT_EQ(CountHits(spec, logits, labels, *evaluator_), 1);
    EXPECT_EQ(CountLabels(spec, logits, labels), 2);
    EXPECT_FALSE(HasTokens(spec, logits, labels));
  }
  Tensor soft = Tensor::From<float>({1, 2, 3}, {0.1f, 0.9f, 0, 0.9f, 0.1f, 1});
  LossSpec spec{"cross_entropy"};
  spec.class_axis = 1;
  EXPECT_EQ(CountHits(spec, logits, soft, *evaluator_), 2);
  EXPECT_EQ(CountLabels(spec, logits, soft), 3);
}

TEST_F(LossValues, HitsAreTheLargestClassOrTheSign) {
  Tensor logits = Tensor::From<float>({4, 2}, {0, 1, 1, 0, 0, 1, 2, 2});
  for (DType dtype : {DType::kInt64, DType::kInt32}) {
    Tensor labels =
        ConvertTo(Tensor::From<int64_t>({4}, {1, 1, -100, 0}), dtype);
    EXPECT_EQ(Hits("cross_entropy", logits, labels), 2);
  }
  Tensor y = Tensor::From<float>({4}, {-1, 2, 3, 0});
  Tensor t = Tensor::From<float>({4}, {0, 1, 0, 0.5});
  EXPECT_EQ(Hits("bce_with_logits", y, t), 3);
  EXPECT_EQ(Hits("bce_with_logits", ConvertTo(y, DType::kFloat16),
                 ConvertTo(t, DType::kDouble)),
            3);
}

}  // namespace
}  // namespace onnx_fp8
