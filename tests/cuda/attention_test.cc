// SPDX-License-Identifier: Apache-2.0
//
// Attention on the GPU beside the CPU: forward and backward, with sizes that
// end inside of tiles, and empty ones.
#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "base/check.h"
#include "tests/cuda/beside_cpu.h"

namespace onnx_fp8 {
namespace {

struct AttentionCase {
  const char* name;
  int b, t, s, heads, groups, d, e;
  const char* attributes = "causal=0, scale=0.2";
  const char* bias = nullptr;  // its shape
  bool relative = false;
  double tolerance = 1e-5;
};

void PrintTo(const AttentionCase& c, std::ostream* out) { *out << c.name; }

std::string ShapeText(int b, int rows, int width) {
  return Concat("float[", b, ",", rows, ",", width, "]");
}

// The forward pass, and the backward pass of its results.
std::string GraphText(const AttentionCase& c) {
  std::string q = ShapeText(c.b, c.t, c.heads * c.d);
  std::string k = ShapeText(c.b, c.s, c.groups * c.d);
  std::string v = ShapeText(c.b, c.s, c.groups * c.e);
  std::string y = ShapeText(c.b, c.t, c.heads * c.e);
  std::string r = Concat("float[", c.heads, ",", c.t + c.s - 1, "]");
  std::string text = "graph \"g\" opset 24\n";
  std::string op = "onnx_fp8.Attention", operands = "q, k, v";
  text += "input q: " + q + "\ninput k: " + k + "\ninput v: " + v +
          "\ninput dy: " + y + "\n";
  if (c.relative) {
    text += "input relative: " + r + "\n";
    operands += ", relative";
  }
  if (c.bias) {
    text += std::string("input bias: float[") + c.bias + "]\n";
    operands += ", bias";
    op += c.relative ? "Relative" : "Bias";
  }
  std::string attributes = Concat("<heads=", c.heads, ", kv_heads=", c.groups,
                                  ", ", c.attributes, ">");
  text += Concat("y: ", y, ", lse: float[", c.b, ",", c.heads, ",", c.t,
                 "] = ", op, attributes, "(", operands, ")\n");
  text += "dq: " + q + ", dk: " + k + ", dv: " + v;
  if (c.relative) text += ", dr: " + r;
  text += " = " + op + "Grad" + attributes + "(dy, " + operands + ", y, lse)\n";
  return text;
}

class CudaAttentionTest : public testing::TestWithParam<AttentionCase> {};

TEST_P(CudaAttentionTest, GivesTheCpusNumbers) {
  ExpectCpusResults(GraphText(GetParam()), GetParam().tolerance);
}

constexpr char kCausal[] = "causal=1, scale=0.2";

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
};

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

// Its results but dk and dv are empty.
TEST(CudaAttentionOfNoRow, Runs) {
  EXPECT_EQ(ErrorOnGpu(GraphText({"", 2, 0, 5, 2, 2, 8, 8})), "");
}

}  // namespace
}  // namespace onnx_fp8
