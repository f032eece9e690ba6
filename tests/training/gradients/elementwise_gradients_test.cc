// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Elementwise = testing::TestWithParam<GradientCase>;

TEST_P(Elementwise, RuleIsTheDerivative) { CheckGradient(GetParam()); }

std::vector<GradientCase> UnaryCases() {
  const Shape s = {3, 4};
  return {
      {"Abs", "Abs", {X(s)}},
      {"Acos", "Acos", {X(s, -0.9, 0.9)}},
      {"Acosh", "Acosh", {X(s, 1.1, 3)}},
      {"Asin", "Asin", {X(s, -0.9, 0.9)}},
      {"Asinh", "Asinh", {X(s)}},
      {"Atan", "Atan", {X(s)}},
      {"Atanh", "Atanh", {X(s, -0.9, 0.9)}},
      {"CastToDouble", "Cast", {X(s)}, {{"to", int64_t{11}}}},
      {"CastLike", "CastLike", {X(s), Doubles({}, {1})}},
      {"Cos", "Cos", {X(s)}},
      {"Cosh", "Cosh", {X(s)}},
      {"Erf", "Erf", {X(s)}},
      {"Exp", "Exp", {X(s)}},
      {"Identity", "Identity", {X(s)}},
      {"Log", "Log", {X(s, 0.1, 3)}},
      {"Neg", "Neg", {X(s)}},
      {"Reciprocal", "Reciprocal", {X(s, 0.2, 3)}},
      {"Sigmoid", "Sigmoid", {X(s)}},
      {"Sin", "Sin", {X(s)}},
      {"Sinh", "Sinh", {X(s)}},
      {"Sqrt", "Sqrt", {X(s, 0.1, 3)}},
      {"Tan", "Tan", {X(s, -1.2, 1.2)}},
      {"Tanh", "Tanh", {X(s)}},
  };
}

std::vector<GradientCase> ActivationCases() {
  const Shape s = {5, 4};
  auto alpha = [](float a) { return Attributes{{"alpha", a}}; };
  return {
      {"Celu", "Celu", {X(s)}},
      {"CeluAlpha", "Celu", {X(s)}, alpha(0.5f)},
      {"Elu", "Elu", {X(s)}},
      {"EluAlpha", "Elu", {X(s)}, alpha(0.3f)},
      {"GeluErf", "Gelu", {X(s)}},
      {"SwiGLU", "onnx_fp8.SwiGLU", {X(s), X(s)}},
      {"GeluTanh", "Gelu", {X(s)}, {{"approximate", std::string("tanh")}}},
      {"HardSigmoid", "HardSigmoid", {X(s, -5, 5)}},
      {"HardSigmoidBeta",
       "HardSigmoid",
       {X(s, -5, 5)},
       {{"alpha", 0.4f}, {"beta", 0.1f}}},
      {"HardSwish", "HardSwish", {X(s, -5, 5)}},
      {"LeakyRelu", "LeakyRelu", {X(s)}},
      {"LeakyReluAlpha", "LeakyRelu", {X(s)}, alpha(-0.3f)},
      {"Mish", "Mish", {X(s)}},
      {"PReluFull", "PRelu", {X(s), X(s)}},
      {"PReluPerChannel", "PRelu", {X({2, 3, 4}), X({3, 1})}},
      {"PReluScalar", "PRelu", {X(s), X({1})}},
      {"Relu", "Relu", {X(s)}},
      {"Selu", "Selu", {X(s)}},
      {"SeluAlpha", "Selu", {X(s)}, {{"alpha", 1.5f}, {"gamma", 0.7f}}},
      {"Softplus", "Softplus", {X(s)}},
      {"Softsign", "Softsign", {X(s)}},
      {"OnnxSwiGLU", "SwiGLU", {X(s), X(s)}},
      {"OnnxSwiGLUAlpha", "SwiGLU", {X(s), X(s)}, alpha(0.6f)},
      {"Swish", "Swish", {X(s)}},
      {"SwishAlpha", "Swish", {X(s)}, alpha(1.7f)},
      {"ThresholdedRelu", "ThresholdedRelu", {X(s, -3, 3)}},
      {"ThresholdedReluAlpha", "ThresholdedRelu", {X(s)}, alpha(0.2f)},
      {"Shrink", "Shrink", {X(s)}, {{"lambd", 0.6f}, {"bias", 0.2f}}},
  };
}

std::vector<GradientCase> BroadcastCases() {
  const Shape s = {2, 3}, row = {3}, column = {2, 1}, one = {};
  std::vector<bool> mask = {true, false, false, true, true, false};
  return {
      {"Add", "Add", {X(s), X(s)}},
      {"AddRow", "Add", {X(s), X(row)}},
      {"AddOuter", "Add", {X({1, 3}), X(column)}},
      {"AddScalar", "Add", {X(one), X(s)}},
      {"Sub", "Sub", {X(s), X(column)}},
      {"SubOuter", "Sub", {X(row), X(column)}},
      {"Mul", "Mul", {X(s), X(s)}},
      {"MulOuter", "Mul", {X(column), X(row)}},
      {"MulLeadingAxis", "Mul", {X({4, 2, 3}), X({2, 1})}},
      {"Div", "Div", {X(s), X(s, 0.5, 2)}},
      {"DivOuter", "Div", {X(row), X(column, 0.5, 2)}},
      {"FloorMod", "Mod", {X(s, -5, 5), X(s, 0.7, 2)}},
      {"FloorModNegative", "Mod", {X(s, -5, 5), X(s, -2, -0.7)}},
      {"Fmod", "Mod", {X(s, -5, 5), X(s, 0.7, 2)}, {{"fmod", int64_t{1}}}},
      {"FmodNegative",
       "Mod",
       {X(s, -5, 5), X(row, -2, -0.7)},
       {{"fmod", int64_t{1}}}},
      {"Pow", "Pow", {X(s, 0.3, 2), X(s)}},
      {"PowOuter", "Pow", {X(row, 0.3, 2), X(column)}},
      {"PowSquare", "Pow", {X(s), Doubles({}, {2})}},
      {"PowCube", "Pow", {X(s), Doubles({}, {3})}},
      {"PowRoot", "Pow", {X(s, 0.3, 2), Doubles({1}, {0.5})}},
      {"PowToZeroAtZero",
       "Pow",
       {XOf({3}, {0, 1, -2}), Doubles({3}, {0, 0, 0})}},
      {"PowInts", "Pow", {X(row), Ints({0, 3, -2})}},
      {"PowIntsTwoAxes", "Pow", {X(row), Ints({2, 1}, {2, 2})}},
      {"PowOfZero", "Pow", {Doubles({2}, {0, 2}), X({2}, 1, 2)}},
      {"Max", "Max", {X(s), X(s), X(row)}},
      {"MaxTies", "Max", {XOf({2}, {1, 3}), XOf({2}, {1, 2})}},
      {"MaxOne", "Max", {X(s)}},
      {"Min", "Min", {X(s), X(column)}},
      {"Mean", "Mean", {X(s), X(row), X(one)}},
      {"Sum", "Sum", {X(s), X(row), X(column)}},
      {"SumOne", "Sum", {X(s)}},
      {"Where", "Where", {Bools(s, mask), X(s), X(s)}},
      {"WhereBroadcast",
       "Where",
       {Bools({2, 1}, {true, false}), X(row), X(one)}},
      {"WhereWideMask", "Where", {Bools(s, mask), X(row), X({1})}},
      {"ClipBoth", "Clip", {X(s), XOf({}, {-1}), XOf({}, {0.5})}},
      {"ClipLow", "Clip", {X(s), XOf({}, {0.1})}},
      {"ClipHigh", "Clip", {X(s), None(), XOf({}, {0.1})}},
      {"ClipNone", "Clip", {X(s)}},
      {"ClipCrossed", "Clip", {X(s), XOf({}, {1}), XOf({}, {-1})}},
      {"DropoutOff", "Dropout", {X(s)}},
      {"DropoutNotTraining",
       "Dropout",
       {X(s), Doubles({}, {0.5}), Bools({}, {false})}},
  };
}

INSTANTIATE_TEST_SUITE_P(Unary, Elementwise, testing::ValuesIn(UnaryCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Activation, Elementwise,
                         testing::ValuesIn(ActivationCases()), CaseName);
INSTANTIATE_TEST_SUITE_P(Broadcast, Elementwise,
                         testing::ValuesIn(BroadcastCases()), CaseName);

}  // namespace
}  // namespace onnx_fp8
