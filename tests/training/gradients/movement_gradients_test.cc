// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Movement = testing::TestWithParam<GradientCase>;

TEST_P(Movement, RuleIsTheDerivative) { CheckGradient(GetParam()); }

std::vector<GradientCase> ShapeCases() {
  auto perm = [](std::vector<int64_t> p) { return Attributes{{"perm", p}}; };
  return {
      {"Reshape", "Reshape", {X({2, 6}), Ints({3, -1})}},
      {"ReshapeKeep", "Reshape", {X({2, 6}), Ints({0, 2, 3})}},
      {"Flatten", "Flatten", {X({2, 3, 2})}},
      {"FlattenAxis0", "Flatten", {X({2, 3})}, Axis(0)},
      {"Squeeze", "Squeeze", {X({2, 1, 3, 1}), Ints({1, -1})}},
      {"SqueezeAll", "Squeeze", {X({2, 1, 3, 1})}},
      {"Unsqueeze", "Unsqueeze", {X({2, 3}), Ints({0, -1})}},
      {"TransposeDefault", "Transpose", {X({2, 3, 4})}},
      {"TransposePerm", "Transpose", {X({2, 3, 4})}, perm({1, 2, 0})},
      {"Transpose4", "Transpose", {X({2, 1, 3, 2})}, perm({3, 0, 2, 1})},
      {"Expand", "Expand", {X({3, 1}), Ints({2, 1, 4})}},
      {"ExpandKeepsWiderInput", "Expand", {X({2, 3}), Ints({1, 1})}},
      {"ExpandScalar", "Expand", {X({}), Ints({2, 2})}},
      {"Tile", "Tile", {X({2, 3}), Ints({3, 2})}},
      {"TileOneAxis", "Tile", {X({2, 1, 2}), Ints({1, 4, 1})}},
      {"DepthToSpaceDcr",
       "DepthToSpace",
       {X({1, 8, 2, 3})},
       {{"blocksize", int64_t{2}}}},
      {"DepthToSpaceCrd",
       "DepthToSpace",
       {X({2, 8, 2, 1})},
       {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}},
      {"SpaceToDepth",
       "SpaceToDepth",
       {X({1, 2, 4, 6})},
       {{"blocksize", int64_t{2}}}},
      {"SpaceToDepthCrd",
       "SpaceToDepth",
       {X({2, 2, 4, 2})},
       {{"blocksize", int64_t{2}}, {"mode", std::string("CRD")}}},
      {"TriluUpper", "Trilu", {X({2, 3, 4})}},
      {"TriluLower", "Trilu", {X({3, 3}), Int(-1)}, {{"upper", int64_t{0}}}},
      {"ReverseSequence", "ReverseSequence", {X({3, 2, 2}), Ints({2, 3})}},
      {"ReverseSequenceBatchFirst",
       "ReverseSequence",
       {X({2, 3, 2}), Ints({2, 3})},
       {{"batch_axis", int64_t{0}}, {"time_axis", int64_t{1}}}},
  };
}

std::vector<GradientCase> JoinCases() {
  return {
      {"Concat", "Concat", {X({2, 3}), X({2, 1}), X({2, 2})}, Axis(1)},
      {"ConcatNegativeAxis", "Concat", {X({2, 1, 2}), X({2, 2, 2})}, Axis(-2)},
      {"ConcatOne", "Concat", {X({2, 3})}, Axis(0)},
      {"ConcatWithConstant",
       "Concat",
       {Doubles({1}, {7}), X({2}), X({1})},
       Axis(0)},
      {"ConcatEmpty", "Concat", {X({0, 2}), X({2, 2})}, Axis(0)},
      {"Split", "Split", {X({2, 6}), Ints({1, 2, 3})}, Axis(1), 3},
      {"SplitEqual", "Split", {X({4, 2})}, {{"num_outputs", int64_t{2}}}, 2},
      {"SplitUneven", "Split", {X({5, 2})}, {{"num_outputs", int64_t{2}}}, 2},
      {"SplitNegativeAxis", "Split", {X({2, 3}), Ints({2, 1})}, Axis(-1), 2},
  };
}

std::vector<GradientCase> SliceCases() {
  const int64_t far = INT64_MAX;
  return {
      {"Slice", "Slice", {X({5, 4}), Ints({1}), Ints({4})}},
      {"SliceAxes",
       "Slice",
       {X({5, 4}), Ints({1, 0}), Ints({3, 2}), Ints({1, 0})}},
      {"SliceNegativeBounds",
       "Slice",
       {X({5, 4}), Ints({-3, -2}), Ints({-1, far})}},
      {"SliceStep2",
       "Slice",
       {X({7, 3}), Ints({1}), Ints({6}), Ints({0}), Ints({2})}},
      {"SliceStep3WholeAxis",
       "Slice",
       {X({7, 2}), Ints({0}), Ints({far}), Ints({0}), Ints({3})}},
      {"SliceBackwards",
       "Slice",
       {X({4, 3}), Ints({-1}), Ints({INT64_MIN}), Ints({-2}), Ints({-1})}},
      {"SliceBackwardsStep2",
       "Slice",
       {X({6, 2}), Ints({4}), Ints({0}), Ints({0}), Ints({-2})}},
      {"SliceBackwardsPastEnd",
       "Slice",
       {X({6}), Ints({100}), Ints({-100}), Ints({0}), Ints({-4})}},
      {"SliceTwoSteps",
       "Slice",
       {X({5, 6}), Ints({4, 1}), Ints({-far, 6}), Ints({0, 1}), Ints({-2, 2})}},
      {"SliceHugeStep",
       "Slice",
       {X({4}), Ints({1}), Ints({4}), Ints({0}), Ints({far})}},
      {"SliceOfOtherIntType",
       "Slice",
       {X({4}), Constant(Tensor::From<int32_t>({1}, std::vector{1})),
        Constant(Tensor::From<int32_t>({1}, std::vector{3}))}},
  };
}

std::vector<GradientCase> PadCases() {
  auto mode = [](const char* m) {
    return Attributes{{"mode", std::string(m)}};
  };
  return {
      {"Pad", "Pad", {X({2, 3}), Ints({1, 0, 0, 2})}},
      {"PadFill", "Pad", {X({2, 3}), Ints({1, 0, 0, 2}), X({})}},
      {"PadAxes", "Pad", {X({2, 3}), Ints({1, 2}), None(), Ints({-1})}},
      {"PadNegative", "Pad", {X({3, 4}), Ints({-1, 1, 0, -2}), X({})}},
      {"PadEdge", "Pad", {X({2, 3}), Ints({1, 2, 2, 1})}, mode("edge")},
      {"PadReflect", "Pad", {X({3, 4}), Ints({2, 3, 1, 2})}, mode("reflect")},
      {"PadWrap", "Pad", {X({2, 3}), Ints({2, 1, 1, 3})}, mode("wrap")},
      {"PadEdgeAxes",
       "Pad",
       {X({2, 3, 2}), Ints({2, 1}), None(), Ints({1})},
       mode("edge")},
  };
}

INSTANTIATE_TEST_SUITE_P(Shape, Movement, testing::ValuesIn(ShapeCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Join, Movement, testing::ValuesIn(JoinCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Slice, Movement, testing::ValuesIn(SliceCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Pad, Movement, testing::ValuesIn(PadCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
