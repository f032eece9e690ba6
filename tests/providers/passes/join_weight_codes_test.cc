// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_weight_codes.h"

#include <gtest/gtest.h>

#include <string>

#include "providers/cpu/cpu_provider.h"
#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

constexpr char kInputsOfCodes[] = R"(input g: float[4,8]
input lr: float[]
input clip: float[]
input ok: bool[]
input s: float[]
param w: float[4,8]
)";
constexpr char kSgdOfCodes[] =
    "w_next: float[4,8] = onnx_fp8.SGD<lr_scale=1.0, weight_decay=0.0>"
    "(w, g, lr, clip, ok)\n";
constexpr char kQuantizesWeight[] =
    "q: float8e4m3fn[4,8], q_s: float[], q_a: float[] = "
    "onnx_fp8.QuantizeWith<q_max=448.0, to=17>(w_next, s)\n";
constexpr char kReturnsCodes[] = "output q\noutput q_s\noutput q_a\n";
constexpr char kStateOfCodes[] = "update w = w_next\n";
constexpr char kJoinedCodes[] =
    "w_next: float[4,8], q: float8e4m3fn[4,8], q_s: float[], q_a: float[] = "
    "onnx_fp8.SGD<lr_scale=1.0, q_max=448.0, round_to=1, to=17, "
    "weight_decay=0.0>(w, g, lr, clip, ok, s)\n";

std::string WeightCodesJoined(const std::string& nodes) {
  const std::string text = AfterPass(kInputsOfCodes + nodes + kStateOfCodes,
                                     JoinWeightCodes, CpuKernels());
  return text.substr(std::string(kInputsOfCodes).size());
}

std::string Exchanged(std::string text, const std::string& from,
                      const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(JoinWeightCodes, TheUpdateWritesTheCodes) {
  EXPECT_EQ(WeightCodesJoined(std::string(kSgdOfCodes) + kQuantizesWeight +
                              kReturnsCodes),
            std::string(kJoinedCodes) + kReturnsCodes + kStateOfCodes);
}

TEST(JoinWeightCodes, TheUpdateWaitsForTheScale) {
  const std::string scale = "later: float[] = Mul(s, lr)\n";
  EXPECT_EQ(WeightCodesJoined(kSgdOfCodes + scale +
                              Exchanged(kQuantizesWeight, ", s)", ", later)") +
                              kReturnsCodes),
            scale + Exchanged(kJoinedCodes, "ok, s)", "ok, later)") +
                kReturnsCodes + kStateOfCodes);
}

TEST(JoinWeightCodes, ARoundingGoesUnlessItIsRead) {
  const std::string round = "r: float[4,8] = onnx_fp8.RoundTo<to=16>(w_next)\n";
  const std::string quantizer = Exchanged(kQuantizesWeight, "w_next", "r");
  const std::string joined =
      Exchanged(kJoinedCodes, "round_to=1,", "round_to=16,");
  EXPECT_EQ(WeightCodesJoined(kSgdOfCodes + round + quantizer + kReturnsCodes),
            joined + kReturnsCodes + kStateOfCodes);
  EXPECT_EQ(WeightCodesJoined(kSgdOfCodes + round + quantizer + kReturnsCodes +
                              "output r\n"),
            joined + round + kReturnsCodes + "output r\n" + kStateOfCodes);
}

TEST(JoinWeightCodes, TheOtherOrientationIsATransposeOfTheCodes) {
  const std::string both =
      "q: float8e4m3fn[4,8], q_s: float[], q_a: float[], t: float8e4m3fn[8,4] "
      "= onnx_fp8.QuantizeWithTranspose<q_max=448.0, to=17>(w_next, s)\n";
  EXPECT_EQ(
      WeightCodesJoined(kSgdOfCodes + both + kReturnsCodes + "output t\n"),
      std::string(kJoinedCodes) +
          "t: float8e4m3fn[8,4] = Transpose<perm=[1,0]>(q)\n" + kReturnsCodes +
          "output t\n" + kStateOfCodes);
}

TEST(JoinWeightCodes, OtherQuantizersStayApart) {
  const std::string late = "most: float[] = ReduceMax<keepdims=0>(w_next)\n";
  for (const std::string& quantizer :
       {late + Exchanged(kQuantizesWeight, ", s)", ", most)"),
        Exchanged(Exchanged(kQuantizesWeight, "QuantizeWith", "QuantizeTensor"),
                  ", s)", ")"),
        Exchanged(kQuantizesWeight, "(w_next,", "(w,"),
        Exchanged(
            Exchanged(kQuantizesWeight, "QuantizeWith", "QuantizeWithPadded"),
            "q: float8e4m3fn[4,8]", "q: float8e4m3fn[16,16]")}) {
    const std::string text = kSgdOfCodes + quantizer + kReturnsCodes;
    EXPECT_EQ(WeightCodesJoined(text), text + kStateOfCodes);
  }
}

// The codes are made of the number that is kept.
TEST(JoinWeightCodes, ADecodedParameterIsTheUpdates) {
  const std::string inputs = Exchanged(kInputsOfCodes, "param w: float[4,8]\n",
                                       "param w: bfloat16[4,8]\n"
                                       "correction c: int8[4,8]\n");
  const std::string update =
      "w_next: bfloat16[4,8], c_next: int8[4,8] = onnx_fp8.SGD<correction=3, "
      "lr_scale=1.0, weight_decay=0.0>(w, g, lr, clip, ok, c)\n";
  const std::string state = "update w = w_next\nupdate c = c_next\n";
  const std::string decode =
      "d: float[4,8] = onnx_fp8.DecodeMaster<correction=3>(w_next, c_next)\n";
  const std::string quantizer = Exchanged(kQuantizesWeight, "w_next", "d");
  EXPECT_EQ(
      AfterPass(inputs + update + decode + quantizer + kReturnsCodes + state,
                JoinWeightCodes, CpuKernels()),
      inputs +
          "w_next: bfloat16[4,8], c_next: int8[4,8], "
          "q: float8e4m3fn[4,8], q_s: float[], q_a: float[] = "
          "onnx_fp8.SGD<correction=3, lr_scale=1.0, q_max=448.0, "
          "round_to=1, to=17, weight_decay=0.0>"
          "(w, g, lr, clip, ok, c, s)\n" +
          kReturnsCodes + state);
  // A half is not the number.
  const std::string half = inputs + update +
                           "d: float[4,8] = Cast<to=1>(w_next)\n" + quantizer +
                           kReturnsCodes + state;
  EXPECT_EQ(AfterPass(half, JoinWeightCodes, CpuKernels()), half);
}

TEST(JoinWeightCodes, AKernelThatKnowsFloatsAloneIsLeft) {
  KernelRegistry kernels;
  kernels.Add(
      "SGD", [](KernelContext&) {}, {}, kDomain);
  const std::string text = std::string(kInputsOfCodes) + kSgdOfCodes +
                           kQuantizesWeight + kReturnsCodes + kStateOfCodes;
  EXPECT_EQ(AfterPass(text, JoinWeightCodes, kernels), text);
}

}  // namespace
}  // namespace onnx_fp8
