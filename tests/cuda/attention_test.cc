// SPDX-License-Identifier: Apache-2.0
//
// Attention on the GPU beside the CPU: forward and backward, with sizes that
// end inside of tiles, and empty ones.
#include <gtest/gtest.h>

#include "providers/cuda/cuda_provider.h"
#include "providers/passes/store_narrow.h"
#include "tests/cuda/attention_case.h"
#include "tests/cuda/beside_cpu.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

class CudaAttentionTest : public testing::TestWithParam<AttentionCase> {};

TEST_P(CudaAttentionTest, GivesTheCpusNumbers) {
  ExpectCpusResults(GraphText(GetParam()), GetParam().tolerance);
}

constexpr char kCausal[] = "causal=1, scale=0.2";

constexpr char kUncausal[] = "causal=0, scale=0.2";

AttentionCase Documents(AttentionCase c) {
  c.segments = true;
  return c;
}

AttentionCase Packed(const char* name, int b, int t, int heads, int groups,
                     int d, const char* attributes, const char* perm,
                     const char* bias = nullptr) {
  return {.name = name,
          .b = b,
          .t = t,
          .s = t,
          .heads = heads,
          .groups = groups,
          .d = d,
          .e = d,
          .attributes = attributes,
          .bias = bias,
          .perm = perm};
}

const AttentionCase kCases[] = {
    {"Small", 1, 5, 5, 1, 1, 8, 8},
    {"OneElement", 1, 1, 1, 2, 2, 1, 1},
    {"OddWidths", 2, 9, 70, 1, 1, 3, 5},
    {"Groups", 1, 70, 66, 4, 2, 8, 12},
    {"CausalGroups", 1, 130, 130, 2, 1, 8, 8, kCausal},
    {"CausalFewColumns", 1, 150, 3, 2, 2, 8, 8, kCausal},
    {"CausalFewRows", 1, 3, 150, 2, 2, 8, 8, kCausal},
    {"Width128", 1, 20, 33, 1, 1, 100, 128},
    {"Width256", 1, 20, 20, 1, 1, 256, 40, kCausal},
    {"Values256", 1, 20, 33, 1, 1, 40, 256},
    {"Wider", 1, 5, 9, 2, 1, 260, 300},
    {"OddWide", 1, 5, 5, 1, 1, 261, 7},
    {"Bias", 2, 40, 70, 2, 2, 8, 8, "causal=0, scale=0.2", "2,2,40,70"},
    {"BiasOfColumns", 2, 40, 70, 2, 2, 8, 8, kCausal, "2,1,1,70"},
    {"BiasOfRows", 2, 40, 70, 2, 2, 8, 8, kCausal, "2,40,1"},
    {"Relative", 2, 70, 131, 1, 1, 8, 8, "causal=0, scale=0.2", "1", true},
    {"RelativeCausal", 1, 131, 70, 2, 1, 4, 4, kCausal, "70", true},
    {"RelativeRow", 1, 1, 2, 2, 2, 8, 8, "causal=0, scale=0.2", "1", true},
    {"RoundedBFloat16", 1, 70, 70, 1, 1, 32, 32,
     "causal=1, scale=0.2, round_to=16", nullptr, false, 1e-2},
    {"RoundedFloat16", 1, 70, 70, 1, 1, 32, 32,
     "causal=0, scale=0.2, round_to=10", nullptr, false, 2e-3},
    {"NoColumn", 2, 5, 0, 2, 2, 8, 8},
    {"NoBatch", 0, 5, 5, 2, 2, 8, 8},
    {"NoElement", 2, 5, 7, 2, 2, 0, 0},
    {"NoValue", 2, 5, 7, 2, 2, 4, 0},
    {"NoColumnRelative", 2, 5, 0, 2, 2, 8, 8, kCausal, "1", true},
    Packed("Packed", 2, 70, 4, 2, 8, kUncausal, "[0,1,2]"),
    Packed("PackedTimeFirst", 3, 70, 2, 2, 12, kCausal, "[1,0,2]"),
    Packed("PackedOddWidth", 2, 9, 2, 1, 5, kUncausal, "[1,0,2]"),
    Packed("PackedBias", 2, 40, 2, 2, 8, kUncausal, "[1,0,2]", "2,1,40,40"),
    Documents({"Segments", 2, 140, 140, 2, 1, 8, 8, kCausal, "1"}),
    Documents({"SegmentsBothWays", 1, 200, 200, 2, 2, 4, 8,
               "causal=0, scale=0.2", "200"}),
    Documents({"SegmentsRounded", 1, 70, 70, 1, 1, 32, 32,
               "causal=1, scale=0.2, round_to=16", "1", false, 1e-2}),
    Documents(
        Packed("PackedSegments", 2, 70, 4, 2, 8, kUncausal, "[1,0,2]", "1")),
    Packed("PackedNoBatch", 0, 5, 2, 2, 8, kUncausal, "[0,1,2]"),
};

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// What cuDNN computes where there is one, and what it leaves to our kernels.
class CudaBFloat16AttentionTest : public testing::TestWithParam<AttentionCase> {
};

// Both sides may round what lies between two 16-bit floats to either.
TEST_P(CudaBFloat16AttentionTest, GivesTheCpusNumbers) {
  std::string text = BFloat16Text(GetParam());
  std::shared_ptr<Graph> wide = ParseGraph(text), narrow = ParseGraph(text);
  StoreNarrow(*narrow, CudaKernels());
  ExpectCpusResults(wide, narrow, GetParam().tolerance);
}

constexpr char kRounded[] = "causal=0, scale=0.2, round_to=16";
constexpr char kCausalRounded[] = "causal=1, scale=0.2, round_to=16";

AttentionCase BFloat16(const char* name, int b, int t, int s, int heads,
                       int groups, int d, const char* attributes,
                       const char* perm = nullptr) {
  return {.name = name,
          .b = b,
          .t = t,
          .s = s,
          .heads = heads,
          .groups = groups,
          .d = d,
          .e = d,
          .attributes = attributes,
          .tolerance = 8e-3,
          .perm = perm};
}

INSTANTIATE_TEST_SUITE_P(
    All, CudaBFloat16AttentionTest,
    testing::Values(
        BFloat16("Square", 2, 33, 33, 2, 2, 16, kRounded),
        BFloat16("Causal", 2, 33, 33, 2, 2, 16, kCausalRounded),
        BFloat16("Groups", 2, 20, 35, 6, 2, 8, kRounded),
        BFloat16("FewColumns", 1, 40, 7, 2, 1, 24, kCausalRounded),
        BFloat16("FewRows", 2, 7, 40, 2, 1, 24, kCausalRounded),
        BFloat16("Width128", 1, 9, 20, 2, 2, 128, kCausalRounded),
        BFloat16("OneElement", 2, 1, 1, 2, 2, 8, kRounded),
        BFloat16("OddWidth", 2, 9, 9, 2, 2, 12, kRounded),
        BFloat16("Packed", 2, 33, 33, 4, 2, 16, kCausalRounded, "[0,1,2]"),
        BFloat16("PackedTimeFirst", 2, 33, 33, 2, 2, 8, kRounded, "[1,0,2]"),
        BFloat16("PackedOddWidth", 2, 9, 9, 2, 2, 12, kRounded, "[0,1,2]")),
    [](const auto& info) { return info.param.name; });

// Whole sequences, and halves of others, are hidden by the lowest float.
TEST(CudaAttention, OfRowsThatSeeMasksOnly) {
  for (const char* attributes : {kUncausal, kCausal}) {
    for (bool relative : {false, true}) {
      AttentionCase c = {"", 2, 70, 70, 2, 1, 8, 8, attributes, "2,1,1,70"};
      c.relative = relative;
      std::string text = GraphText(c);
      const std::string bias = "input bias: float[2,1,1,70]\n";
      text.replace(text.find(bias), bias.size(),
                   R"(input random: float[2,1,1,70]
const bounds: float[2,1,1,1] = {9,0}
const low: float[] = {-3.4028234663852886e38}
hidden: bool[2,1,1,70] = Less(random, bounds)
bias: float[2,1,1,70] = Where(hidden, low, random)
)");
      ExpectCpusResults(text, c.tolerance);
    }
  }
}

// Its results but dk and dv are empty.
TEST(CudaAttentionOfNoRow, Runs) {
  EXPECT_EQ(ErrorOnGpu(GraphText({"", 2, 0, 5, 2, 2, 8, 8})), "");
}

}  // namespace
}  // namespace onnx_fp8
