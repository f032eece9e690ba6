// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_loss_gradient.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

std::string LossesJoined(const std::string& text) {
  KernelRegistry kernels;
  kernels.Add(
      "CrossEntropyWithGrad", [](KernelContext&) {}, {}, kDomain);
  return AfterPass(text, JoinLossGradient, kernels);
}

constexpr char kInputs[] = R"(input x: float[4,5]
input labels: int64[4]
input others: int64[4]
input seed: float[]
)";
constexpr char kLoss[] =
    "loss: float[], lse: float[4] = onnx_fp8.CrossEntropy<ignore_index=-100>"
    "(x, labels)\n";
constexpr char kGrad[] =
    "dx: float[4,5] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
    "(share, x, lse, labels)\n";
constexpr char kOutputs[] = "output loss\noutput dx\n";

void ExpectLossStays(const std::string& nodes) {
  const std::string text = kInputs + nodes + kOutputs;
  EXPECT_EQ(LossesJoined(text), text);
}

// What reads the loss moves behind the node, which waits for its factor.
TEST(JoinLossGradient, OneNodeComputesBoth) {
  const std::string text = std::string(kInputs) + kLoss +
                           "twice: float[] = Add(loss, loss)\n"
                           "share: float[] = Neg(seed)\n" +
                           kGrad + kOutputs + "output twice\n";
  EXPECT_EQ(LossesJoined(text),
            std::string(kInputs) + R"(share: float[] = Neg(seed)
loss: float[], dx: float[4,5] = onnx_fp8.CrossEntropyWithGrad<ignore_index=-100>(share, x, labels)
twice: float[] = Add(loss, loss)
)" + kOutputs + "output twice\n");
  EXPECT_EQ(AfterPass(text, JoinLossGradient, {}), text);
}

// As chunks of a loss are. The factor of the second one depends on the first.
TEST(JoinLossGradient, SeveralLosses) {
  const std::string second =
      "loss_2: float[], lse_2: float[4] = onnx_fp8.CrossEntropy"
      "<ignore_index=-100>(x, others)\n";
  const std::string second_grad =
      "dx_2: float[4,5] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>"
      "(loss, x, lse_2, others)\n";
  const std::string share = "share: float[] = Neg(seed)\n";
  const std::string outputs =
      std::string(kOutputs) + "output loss_2\noutput dx_2\n";
  const std::string first_joined =
      "loss: float[], dx: float[4,5] = onnx_fp8.CrossEntropyWithGrad"
      "<ignore_index=-100>(share, x, labels)\n";
  const std::string second_joined =
      "loss_2: float[], dx_2: float[4,5] = onnx_fp8.CrossEntropyWithGrad"
      "<ignore_index=-100>(loss, x, others)\n";
  EXPECT_EQ(LossesJoined(kInputs + second + kLoss + share + kGrad +
                         second_grad + outputs),
            kInputs + share + first_joined + second_joined + outputs);
  // Each factor depends on the other loss: only the first pair is joined.
  const std::string less = "share: float[] = Neg(loss_2)\n";
  EXPECT_EQ(
      LossesJoined(kInputs + second + kLoss + less + kGrad + second_grad +
                   outputs),
      kInputs + std::string(kLoss) + second_joined + less + kGrad + outputs);
}

TEST(JoinLossGradient, WhatDependsOnTheLossStays) {
  ExpectLossStays(std::string(kLoss) +
                  "less: float[] = Neg(loss)\n"
                  "share: float[] = Mul(seed, less)\n" +
                  kGrad);
  ExpectLossStays(std::string(kLoss) +
                  "share: float[] = ReduceMax<keepdims=0>(lse)\n" + kGrad);
}

TEST(JoinLossGradient, TheLseHasNoOtherReader) {
  const std::string share = "share: float[] = Neg(seed)\n";
  const std::string text = kInputs + share + kLoss + kGrad + kOutputs;
  EXPECT_NE(LossesJoined(text), text);
  EXPECT_EQ(LossesJoined(text + "output lse\n"), text + "output lse\n");
  const std::string read = kInputs + share + kLoss + kGrad +
                           "n: float[4] = Neg(lse)\n" + kOutputs + "output n\n";
  EXPECT_EQ(LossesJoined(read), read);
  ExpectLossStays(share +
                  "loss: float[] = onnx_fp8.CrossEntropy<ignore_index=-100>"
                  "(x, labels)\n"
                  "dx: float[4,5] = Neg(x)\n");
}

TEST(JoinLossGradient, TheGradientIsThatOfTheLoss) {
  const std::string before =
      "share: float[] = Neg(seed)\n"
      "y: float[4,5] = Neg(x)\n" +
      std::string(kLoss);
  for (const char* operands : {"<ignore_index=-100>(share, y, lse, labels)",
                               "<ignore_index=-100>(share, x, lse, others)",
                               "<ignore_index=3>(share, x, lse, labels)"}) {
    ExpectLossStays(before + "dx: float[4,5] = onnx_fp8.CrossEntropyGrad" +
                    operands + "\n");
  }
}

}  // namespace
}  // namespace onnx_fp8
