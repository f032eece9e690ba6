// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Norms = testing::TestWithParam<GradientCase>;

TEST_P(Norms, RuleIsTheDerivative) { CheckGradient(GetParam()); }

// Statistics in double: the operator's default is float.
const Attributes kDouble = {{"stash_type", int64_t{11}}};

std::vector<GradientCase> LayerNormCases() {
  Attributes eps = Axis(1, kDouble);
  eps["epsilon"] = 0.1f;
  const Attributes axis0 = Axis(0, kDouble), axis1 = Axis(1, kDouble);
  const std::string ln = "LayerNormalization", rms = "RMSNormalization";
  return {
      {"LayerNorm", ln, {X({2, 3, 4}), X({4}), X({4})}, kDouble},
      {"LayerNormNoBias", ln, {X({3, 4}), X({4})}, kDouble},
      {"LayerNormAxis1", ln, {X({2, 3, 4}), X({3, 4}), X({3, 4})}, eps},
      {"LayerNormAxis0", ln, {X({3, 2}), X({3, 2}), X({3, 2})}, axis0},
      {"LayerNormScalarScale", ln, {X({3, 4}), X({1}), X({1})}, kDouble},
      {"LayerNormRowScale", ln, {X({2, 3, 4}), X({4}), X({3, 1})}, axis1},
      {"LayerNormWideScale", ln, {X({2, 3, 4}), X({3, 4}), X({4})}, kDouble},
      {"LayerNormWideBias", ln, {X({2, 3, 4}), X({4}), X({2, 1, 4})}, kDouble},
      {"LayerNormOwnShape",
       ln,
       {X({2, 3, 4}), X({2, 3, 4}), X({2, 3, 4})},
       kDouble},
      // The loss depends on the statistics too.
      {"LayerNormStatistics",
       ln,
       {X({2, 3, 4}), X({3, 4}), X({3, 4})},
       axis1,
       3},
      {"LayerNormMean", ln, {X({2, 4}), X({2, 4})}, kDouble, 2},
      {"AddLayerNorm",
       "onnx_fp8.AddLayerNorm",
       {X({2, 3, 4}), X({2, 3, 4}), X({4}), X({4})},
       Axis(-1, {{"epsilon", 0.1f}}),
       2},
      {"AddLayerNormStatistics",
       "onnx_fp8.AddLayerNorm",
       {X({2, 3, 4}), X({2, 3, 4}), X({4}), X({4})},
       Axis(-1, {{"epsilon", 0.1f}}),
       4},
      {"AddRMSNorm",
       "onnx_fp8.AddRMSNorm",
       {X({2, 3, 4}), X({2, 3, 4}), X({4})},
       Axis(-1, {{"epsilon", 0.1f}}),
       2},
      {"RMSNorm", rms, {X({2, 3, 4}), X({4})}, kDouble},
      {"RMSNormAxis1", rms, {X({2, 3, 4}), X({3, 4})}, eps},
      {"RMSNormAxis0", rms, {X({3, 2}), X({3, 2})}, axis0},
      {"RMSNormScalarScale", rms, {X({3, 4}), X({1})}, kDouble},
      {"RMSNormWideScale", rms, {X({2, 3, 4}), X({3, 1})}, kDouble},
      {"RMSNormOwnShape", rms, {X({2, 3, 4}), X({2, 3, 4})}, kDouble},
  };
}

std::vector<GradientCase> ChannelCases() {
  const std::string bn = "BatchNormalization";
  const std::string in = "InstanceNormalization";
  const std::string gn = "GroupNormalization";
  const Operand mean = Doubles({3}, {0.1, -0.3, 0.5});
  const Operand variance = Doubles({3}, {0.7, 1.3, 2});
  const Attributes training = {{"training_mode", int64_t{1}},
                               {"momentum", 0.7f}};
  auto groups = [](int64_t g) {
    return Attributes{
        {"num_groups", g}, {"epsilon", 0.01f}, {"stash_type", int64_t{11}}};
  };
  return {
      {"BatchNorm", bn, {X({2, 3, 2}), X({3}), X({3}), X({3}), X({3}, 0.5, 2)}},
      {"BatchNormRank2", bn, {X({4, 3}), X({3}), X({3}), mean, variance}},
      {"BatchNormTraining",
       bn,
       {X({2, 3, 2, 2}), X({3}), X({3}), X({3}), X({3}, 0.5, 2)},
       training,
       3},
      {"BatchNormTrainingRank2",
       bn,
       {X({5, 3}), X({3}), X({3}), mean, variance},
       training,
       3},
      {"InstanceNorm", in, {X({2, 3, 4}), X({3}), X({3})}},
      {"InstanceNorm2d",
       in,
       {X({1, 2, 3, 2}), X({2}), X({2})},
       {{"epsilon", 0.1f}}},
      {"GroupNorm", gn, {X({2, 4, 3}), X({4}), X({4})}, groups(2)},
      {"GroupNormOneGroup", gn, {X({2, 3, 2, 2}), X({3}), X({3})}, groups(1)},
      {"LpNorm2", "LpNormalization", {X({2, 3, 2})}, Axis(1)},
      {"LpNorm1", "LpNormalization", {X({3, 4})}, {{"p", int64_t{1}}}},
      {"Lrn", "LRN", {X({2, 5, 3})}, {{"size", int64_t{3}}, {"alpha", 0.5f}}},
      {"LrnEven",
       "LRN",
       {X({1, 5, 2})},
       {{"size", int64_t{4}}, {"alpha", 0.9f}, {"beta", 0.5f}, {"bias", 2.0f}}},
  };
}

INSTANTIATE_TEST_SUITE_P(LayerNorm, Norms, testing::ValuesIn(LayerNormCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Channels, Norms, testing::ValuesIn(ChannelCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
