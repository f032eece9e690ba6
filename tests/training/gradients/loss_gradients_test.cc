// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Losses = testing::TestWithParam<GradientCase>;

TEST_P(Losses, RuleIsTheDerivative) { CheckGradient(GetParam()); }

Attributes How(const char* reduction) {
  return {{"reduction", std::string(reduction)}};
}

Attributes Ignoring(const char* reduction, int64_t ignored) {
  Attributes a = How(reduction);
  a["ignore_index"] = ignored;
  return a;
}

std::vector<GradientCase> CrossEntropyCases() {
  const std::string op = "SoftmaxCrossEntropyLoss";
  const Operand labels = Ints({4}, {2, 0, 1, 2});
  const Operand some = Ints({4}, {2, -100, 1, -100});
  const Operand places = Ints({2, 3}, {2, 0, 1, 2, 2, 0});
  const Operand x = X({4, 3});
  const Operand weights = X({3}, 0.5, 2);
  return {
      {"Mean", op, {x, labels}},
      {"MeanIgnore", op, {x, some}, Ignoring("mean", -100)},
      {"MeanIgnoreClass", op, {x, labels}, Ignoring("mean", 2)},
      {"MeanPlaces", op, {X({2, 3, 3}), places}},
      {"MeanPlacesIgnore", op, {X({2, 3, 3}), places}, Ignoring("mean", 0)},
      {"MeanWeights", op, {x, labels, weights}},
      {"MeanWeightsIgnore", op, {x, some, weights}, Ignoring("mean", -100)},
      {"MeanLogProb", op, {x, labels}, {}, 2},
      {"Own",
       "onnx_fp8.CrossEntropy",
       {x, some},
       {{"ignore_index", int64_t{-100}}}},
      // By its body, because the loss depends on lse too.
      {"OwnWithLse",
       "onnx_fp8.CrossEntropy",
       {x, labels},
       {{"ignore_index", int64_t{-100}}},
       2},
      {"Sum", op, {x, labels}, How("sum")},
      {"SumIgnore", op, {x, some}, Ignoring("sum", -100)},
      {"SumWeights", op, {x, labels, weights}, How("sum")},
      {"None", op, {x, labels}, How("none")},
      {"NoneIgnore", op, {x, some}, Ignoring("none", -100)},
      {"NoneWeightsPlaces", op, {X({2, 3, 3}), places, weights}, How("none")},
      {"NoneWeightsLogProb", op, {x, some, weights}, Ignoring("none", -100), 2},
      {"Int32Labels",
       op,
       {x, Constant(Tensor::From<int32_t>({4}, std::vector{2, 0, 1, 1}))}},
  };
}

std::vector<GradientCase> LikelihoodCases() {
  const std::string op = "NegativeLogLikelihoodLoss";
  const Operand labels = Ints({4}, {2, 0, 1, 2});
  const Operand places = Ints({2, 2}, {2, 0, 1, 2});
  const Operand x = X({4, 3});
  const Operand weights = Doubles({3}, {0.5, 1.5, 2});
  return {
      {"NllMean", op, {x, labels}},
      {"NllMeanIgnore", op, {x, labels}, Ignoring("mean", 2)},
      {"NllMeanWeights", op, {x, labels, weights}},
      {"NllSum", op, {x, labels}, How("sum")},
      {"NllNone", op, {X({2, 3, 2}), places}, How("none")},
      {"NllNoneWeightsIgnore",
       op,
       {X({2, 3, 2}), places, weights},
       Ignoring("none", 0)},
  };
}

INSTANTIATE_TEST_SUITE_P(Softmax, Losses,
                         testing::ValuesIn(CrossEntropyCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Likelihood, Losses,
                         testing::ValuesIn(LikelihoodCases()), CaseName);

}  // namespace
}  // namespace onnx_fp8
