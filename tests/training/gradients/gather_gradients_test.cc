// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Gathering = testing::TestWithParam<GradientCase>;

TEST_P(Gathering, RuleIsTheDerivative) { CheckGradient(GetParam()); }

std::vector<GradientCase> GatherCases() {
  return {
      {"Gather", "Gather", {X({4, 3}), Ints({2, 3}, {0, 3, 3, 1, 0, 0})}},
      {"GatherAxis1", "Gather", {X({2, 4, 3}), Ints({1, 1, -1})}, Axis(1)},
      {"GatherLastAxis",
       "Gather",
       {X({2, 3}), Ints({2, 2}, {-1, 0, 1, 1})},
       Axis(-1)},
      {"GatherScalarIndex", "Gather", {X({3, 2}), Int(-1)}},
      {"GatherInt32",
       "Gather",
       {X({3, 2}), Constant(Tensor::From<int32_t>({2}, std::vector{2, -3}))}},
      {"GatherNothing", "Gather", {X({3, 2}), Ints(Shape{0}, {})}},
      {"GatherElements",
       "GatherElements",
       {X({3, 3}), Ints({2, 3}, {1, 2, 0, 2, -1, 0})}},
      {"GatherElementsAxis1",
       "GatherElements",
       {X({2, 3}), Ints({2, 4}, {0, 0, 2, -1, 1, 1, 1, 2})},
       Axis(1)},
      {"GatherNDElements",
       "GatherND",
       {X({2, 3}), Ints({3, 2}, {0, 1, 1, -1, 0, 1})}},
      {"GatherNDRows", "GatherND", {X({3, 2}), Ints({4, 1}, {2, 0, -1, 2})}},
      {"GatherNDBatch",
       "GatherND",
       {X({2, 3, 2}), Ints({2, 2, 1}, {0, 2, -1, -1})},
       {{"batch_dims", int64_t{1}}}},
      {"GatherNDTwoBatches",
       "GatherND",
       {X({2, 2, 3}), Ints({2, 2, 1}, {0, 2, -1, 1})},
       {{"batch_dims", int64_t{2}}}},
      {"GatherNDPlanes",
       "GatherND",
       {X({2, 3, 2, 2}), Ints({2, 2, 2}, {0, 1, 1, 2, 0, 1, -1, -3})}},
      {"TopK", "TopK", {X({3, 5}), Ints({2})}, {}, 2},
      {"TopKSmallestAxis0",
       "TopK",
       {X({4, 2}), Ints({3})},
       {{"axis", int64_t{0}}, {"largest", int64_t{0}}},
       2},
      {"CumSum", "CumSum", {X({2, 4}), Int(1)}},
      {"CumSumExclusive",
       "CumSum",
       {X({3, 2}), Int(0)},
       {{"exclusive", int64_t{1}}}},
      {"CumSumReverse",
       "CumSum",
       {X({2, 4}), Int(-1)},
       {{"reverse", int64_t{1}}}},
      {"CumSumExclusiveReverse",
       "CumSum",
       {X({2, 4}), Int(-1)},
       {{"exclusive", int64_t{1}}, {"reverse", int64_t{1}}}},
      {"OneHot", "OneHot", {Ints({3}, {0, 2, -1}), Int(4), X({2})}},
      {"OneHotAxis0",
       "OneHot",
       {Ints({3}, {0, 2, 9}), Int(4), X({2})},
       Axis(0)},
  };
}

std::vector<GradientCase> ScatterCases() {
  const Operand at = Ints({2, 3}, {1, 2, 0, 2, -3, 2});
  const Operand twice = Ints({2, 3}, {1, 2, 1, 1, 2, 1});
  auto how = [](const char* reduction, int64_t axis = 0) {
    return Attributes{{"reduction", std::string(reduction)}, {"axis", axis}};
  };
  return {
      {"ScatterElements", "ScatterElements", {X({3, 3}), at, X({2, 3})}},
      {"ScatterElementsAxis1",
       "ScatterElements",
       {X({2, 4}), Ints({2, 2}, {3, 0, -1, 1}), X({2, 2})},
       Axis(1)},
      {"ScatterElementsAdd",
       "ScatterElements",
       {X({3, 3}), twice, X({2, 3})},
       how("add")},
      {"ScatterElementsMulData",
       "ScatterElements",
       {X({3, 3}), twice, Doubles({2, 3}, {2, 0, 1, -1, 3, 2})},
       how("mul")},
      {"ScatterElementsMax",
       "ScatterElements",
       {X({3, 3}), twice, X({2, 3})},
       how("max")},
      {"ScatterElementsMin",
       "ScatterElements",
       {X({2, 3}), Ints({2, 2}, {1, 1, 2, 0}), X({2, 2})},
       how("min", 1)},
      {"ScatterND", "ScatterND", {X({4, 2}), Ints({2, 1}, {3, 1}), X({2, 2})}},
      {"ScatterNDElements",
       "ScatterND",
       {X({3, 2}), Ints({2, 2}, {0, 1, 2, -2}), X({2})}},
      {"ScatterNDAdd",
       "ScatterND",
       {X({4, 2}), Ints({3, 1}, {3, 1, 3}), X({3, 2})},
       {{"reduction", std::string("add")}}},
  };
}

INSTANTIATE_TEST_SUITE_P(Gather, Gathering, testing::ValuesIn(GatherCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Scatter, Gathering, testing::ValuesIn(ScatterCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
