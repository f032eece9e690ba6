// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Reductions = testing::TestWithParam<GradientCase>;

TEST_P(Reductions, RuleIsTheDerivative) { CheckGradient(GetParam()); }

// Every way to name axes, for every reduction.
std::vector<GradientCase> AllForms() {
  const Attributes flat = {{"keepdims", int64_t{0}}};
  const Attributes noop = {{"noop_with_empty_axes", int64_t{1}}};
  std::vector<GradientCase> cases;
  for (const char* name : {"L1", "L2", "LogSum", "LogSumExp", "Max", "Mean",
                           "Min", "Prod", "Sum", "SumSquare"}) {
    std::string op = std::string("Reduce") + name;
    Operand x = X({2, 3, 4}, 0.3, 2);
    Operand y = X({2, 3}, 0.3, 2);
    cases.push_back({op + "All", op, {y}});
    cases.push_back({op + "AllFlat", op, {y}, flat});
    cases.push_back({op + "Kept", op, {x, Ints({1})}});
    cases.push_back({op + "Flat", op, {x, Ints({0, -1})}, flat});
    cases.push_back({op + "Noop", op, {y}, noop});
    cases.push_back(
        {op + "NoopEmpty", op, {y, Ints(std::vector<int64_t>{})}, noop});
  }
  return cases;
}

std::vector<GradientCase> SpecialValues() {
  const Operand signs = X({3, 4});
  return {
      {"L1Signs", "ReduceL1", {signs, Ints({1})}},
      {"L2Signs", "ReduceL2", {signs, Ints({1})}},
      {"LogSumExpSigns", "ReduceLogSumExp", {signs, Ints({0})}},
      {"MaxSigns", "ReduceMax", {signs, Ints({0})}},
      {"MinSigns", "ReduceMin", {signs, Ints({1})}},
      {"SumSquareSigns", "ReduceSumSquare", {signs, Ints({1})}},
      // The difference quotient at a tie of two is the mean of both sides.
      {"MaxTies", "ReduceMax", {XOf({2, 3}, {1, 3, 3, 4, 0, 4}), Ints({1})}},
      {"MinTies", "ReduceMin", {XOf({2, 3}, {1, 1, 3, 4, 0, 0}), Ints({1})}},
      {"ProdSigns", "ReduceProd", {signs, Ints({1})}},
      {"ProdOneZero",
       "ReduceProd",
       {XOf({2, 3}, {2, 0, 3, 1, 2, 3}), Ints({1})}},
      {"ProdTwoZeros", "ReduceProd", {XOf({4}, {2, 0, 3, 0})}},
  };
}

std::vector<GradientCase> SoftmaxCases() {
  auto axis = [](int64_t a) { return Attributes{{"axis", a}}; };
  return {
      {"Softmax", "Softmax", {X({2, 3, 4})}},
      {"SoftmaxAxis0", "Softmax", {X({3, 2})}, axis(0)},
      {"SoftmaxAxis1", "Softmax", {X({2, 3, 2})}, axis(1)},
      {"SoftmaxNegativeAxis", "Softmax", {X({2, 3, 2})}, axis(-2)},
      {"LogSoftmax", "LogSoftmax", {X({2, 3, 4})}},
      {"LogSoftmaxAxis1", "LogSoftmax", {X({2, 3, 2})}, axis(1)},
  };
}

INSTANTIATE_TEST_SUITE_P(Forms, Reductions, testing::ValuesIn(AllForms()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Values, Reductions, testing::ValuesIn(SpecialValues()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Softmax, Reductions, testing::ValuesIn(SoftmaxCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
