// SPDX-License-Identifier: Apache-2.0
//
// Ops whose gradient comes from their function bodies.
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

using Bodies = testing::TestWithParam<GradientCase>;

TEST_P(Bodies, GradientIsTheDerivative) { CheckGradient(GetParam()); }

std::vector<GradientCase> AttentionCases() {
  const std::string op = "Attention";
  const Operand mask = Bools({3, 4}, {true, true, false, true,   //
                                      true, false, false, true,  //
                                      true, true, true, true});
  const Attributes heads = {{"q_num_heads", int64_t{2}},
                            {"kv_num_heads", int64_t{2}}};
  return {
      {"Attention", op, {X({1, 2, 3, 2}), X({1, 2, 4, 2}), X({1, 2, 4, 3})}},
      {"AttentionCausal",
       op,
       {X({2, 1, 3, 2}), X({2, 1, 3, 2}), X({2, 1, 3, 2})},
       {{"is_causal", int64_t{1}}}},
      {"AttentionGrouped",
       op,
       {X({1, 4, 2, 2}), X({1, 2, 3, 2}), X({1, 2, 3, 2})},
       {{"scale", 0.3f}}},
      {"AttentionMask",
       op,
       {X({1, 1, 3, 2}), X({1, 1, 4, 2}), X({1, 1, 4, 2}), mask}},
      {"AttentionBias",
       op,
       {X({1, 2, 3, 2}), X({1, 2, 4, 2}), X({1, 2, 4, 2}), X({3, 4})},
       {{"softcap", 2.0f}}},
      {"Attention3d", op, {X({1, 3, 4}), X({1, 4, 4}), X({1, 4, 4})}, heads},
  };
}

std::vector<GradientCase> OwnAttentionCases() {
  auto attributes = [](int64_t heads, int64_t groups, int64_t causal) {
    return Attributes{{"heads", heads},
                      {"kv_heads", groups},
                      {"scale", 0.7f},
                      {"causal", causal},
                      {"round_to", static_cast<int64_t>(DType::kDouble)}};
  };
  auto packed = [&](int64_t heads, int64_t groups, int64_t causal,
                    std::vector<int64_t> perm) {
    Attributes all = attributes(heads, groups, causal);
    all["perm"] = std::move(perm);
    return all;
  };
  const Operand bias = Doubles({3, 4}, {0, -1, 2, 0, 1, 1, -3, 0, 0, 2, 0, 1});
  const Operand segments =
      Constant(Tensor::From<int32_t>({2, 4}, {0, 0, 1, 2, 3, 3, 3, 4}));
  return {
      {"Own",
       "onnx_fp8.Attention",
       {X({2, 3, 4}), X({2, 4, 4}), X({2, 4, 6})},
       attributes(2, 2, 0)},
      {"OwnGroupedCausal",
       "onnx_fp8.Attention",
       {X({1, 3, 8}), X({1, 3, 4}), X({1, 3, 2})},
       attributes(4, 2, 1)},
      {"OwnBias",
       "onnx_fp8.AttentionBias",
       {X({2, 3, 4}), X({2, 4, 4}), X({2, 4, 4}), bias},
       attributes(2, 2, 0)},
      {"OwnPacked",
       "onnx_fp8.AttentionPacked",
       {X({2, 3, 8})},
       packed(2, 1, 0, {0, 1, 2})},
      {"OwnPackedTimeFirst",
       "onnx_fp8.AttentionPacked",
       {X({3, 2, 12})},
       packed(2, 2, 1, {1, 0, 2})},
      {"OwnPackedBias",
       "onnx_fp8.AttentionPackedBias",
       {X({4, 2, 6}), Doubles({4, 4}, {0, -1, 2, 0, 1, 1, -3, 0,  //
                                       0, 2, 0, 1, 1, 0, 3, -1})},
       packed(1, 1, 0, {1, 0, 2})},
      {"OwnSegments",
       "onnx_fp8.AttentionSegments",
       {X({2, 4, 8}), X({2, 4, 4}), X({2, 4, 6}), Doubles({1}, {0}), segments},
       attributes(4, 2, 1)},
      {"OwnPackedSegments",
       "onnx_fp8.AttentionPackedSegments",
       {X({4, 2, 6}), Doubles({4}, {0, -1, 2, 1}), segments},
       packed(1, 1, 0, {1, 0, 2})},
      {"OwnRelative",
       "onnx_fp8.AttentionRelative",
       {X({2, 3, 4}), X({2, 4, 4}), X({2, 4, 4}), X({2, 6}), bias},
       attributes(2, 2, 0)},
  };
}

std::vector<GradientCase> RotaryCases() {
  const std::string op = "RotaryEmbedding";
  const Operand positions = Ints({1, 3}, {0, 2, 1});
  const Operand cosines =
                    Doubles({1, 3, 4}, {1, 2, 3, 4, -1, 5, 0, 2, 7, 3, 1, -2}),
                sines =
                    Doubles({1, 3, 4}, {3, 0, -2, 1, 2, 2, 4, 1, -5, 6, 3, 1});
  return {
      {"OwnRotary",
       "onnx_fp8.Rotary",
       {X({2, 3, 8}), cosines, sines},
       {{"heads", int64_t{2}}}},
      {"Rotary", op, {X({1, 2, 3, 4}), X({5, 2}), X({5, 2}), positions}},
      {"RotaryInterleaved",
       op,
       {X({1, 2, 3, 4}), X({5, 2}), X({5, 2}), positions},
       {{"interleaved", int64_t{1}}}},
      {"RotaryPartial",
       op,
       {X({1, 2, 3, 6}), X({5, 2}), X({5, 2}), positions},
       {{"rotary_embedding_dim", int64_t{4}}}},
      {"RotaryNoPositions", op, {X({2, 2, 3, 4}), X({2, 3, 2}), X({2, 3, 2})}},
  };
}

INSTANTIATE_TEST_SUITE_P(Attention, Bodies, testing::ValuesIn(AttentionCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Own, Bodies, testing::ValuesIn(OwnAttentionCases()),
                         CaseName);
INSTANTIATE_TEST_SUITE_P(Rotary, Bodies, testing::ValuesIn(RotaryCases()),
                         CaseName);

}  // namespace
}  // namespace onnx_fp8
