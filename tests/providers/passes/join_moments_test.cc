// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_moments.h"

#include <gtest/gtest.h>

#include <string>

#include "providers/cpu/cpu_provider.h"
#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

constexpr char kUpdateInputs[] = R"(input g: float[4]
input lr: float[]
input clip: float[]
input ok: bool[]
input step: int64[]
param w: float[4]
moment m: bfloat16[4]
moment v: bfloat16[4]
counter seed: int64[]
)";

constexpr char kDecodes[] = R"(m_f: float[4] = Cast<to=1>(m)
v_f: float[4] = Cast<to=1>(v)
)";

constexpr char kAdamUpdate[] =
    "w_next: float[4], m_new: float[4], v_new: float[4] = onnx_fp8.Adam"
    "<eps=0.5, lr_scale=1.0, one_minus_beta1=0.5, one_minus_beta2=0.25, "
    "weight_decay=0.0>(w, g, m_f, v_f, step, lr, clip, ok)\n";

constexpr char kEncodes[] = R"(m_next: bfloat16[4] = Cast<to=16>(m_new)
v_next: bfloat16[4] = onnx_fp8.RoundStochastic<begin=6, row=2, shift=4, stream=77, stride=8>(v_new, seed, step)
)";

constexpr char kUpdates[] = R"(update w = w_next
update m = m_next
update v = v_next
)";

std::string MomentsJoined(const std::string& nodes) {
  const std::string text =
      AfterPass(kUpdateInputs + nodes + kUpdates, JoinMoments, CpuKernels());
  return text.substr(text.find("counter seed: int64[]\n") + 22);
}

void ExpectApart(const std::string& nodes) {
  EXPECT_EQ(MomentsJoined(nodes), nodes + kUpdates);
}

TEST(JoinMoments, TheUpdateReadsAndWritesWhatTheStateKeeps) {
  EXPECT_EQ(
      MomentsJoined(std::string(kDecodes) + kAdamUpdate + kEncodes),
      std::string(
          "w_next: float[4], m_next: bfloat16[4], v_next: bfloat16[4] = "
          "onnx_fp8.Adam<begin=6, eps=0.5, lr_scale=1.0, one_minus_beta1=0.5, "
          "one_minus_beta2=0.25, row=2, shift=4, stream=77, stride=8, "
          "weight_decay=0.0>(w, g, m, v, step, lr, clip, ok, seed, step)\n") +
          kUpdates);
}

constexpr char kMeter[] =
    "amax: float[] = onnx_fp8.UpdateAmax<eps=0.5, one_minus_beta1=0.5, "
    "one_minus_beta2=0.25>(m_new, v_new, step)\n";
constexpr char kReader[] = "twice: float[] = Add(amax, amax)\n";

TEST(JoinMoments, TheAmaxIsTheLastResult) {
  EXPECT_EQ(
      MomentsJoined(std::string(kDecodes) + kAdamUpdate + kMeter + kEncodes +
                    kReader),
      std::string("w_next: float[4], m_next: bfloat16[4], v_next: bfloat16[4], "
                  "amax: float[] = onnx_fp8.Adam<begin=6, eps=0.5, "
                  "lr_scale=1.0, one_minus_beta1=0.5, one_minus_beta2=0.25, "
                  "row=2, shift=4, stream=77, stride=8, weight_decay=0.0>"
                  "(w, g, m, v, step, lr, clip, ok, seed, step)\n") +
          kReader + kUpdates);
}

// The kernel has the update's numbers only.
TEST(JoinMoments, TheAmaxOfOtherNumbersStaysApart) {
  for (const auto& [from, to] :
       {std::pair{"UpdateAmax<eps=0.5", "UpdateAmax<eps=0.25"},
        std::pair{"(m_new, v_new, step)", "(m_new, v_new, later)"},
        std::pair{"(m_new, v_new, step)", "(m_f, v_new, step)"}}) {
    std::string meter = kMeter;
    meter.replace(meter.find(from), std::string(from).size(), to);
    ExpectApart(std::string("later: int64[] = Add(step, step)\n") + kDecodes +
                kAdamUpdate + meter + kEncodes + kReader);
  }
}

TEST(JoinMoments, AMomentumHasNoDraws) {
  const std::string nodes =
      "m_f: float[4] = Cast<to=1>(m)\n"
      "w_next: float[4], m_new: float[4] = onnx_fp8.SGDMomentum<lr_scale=1.0, "
      "momentum=0.5, nesterov=0, weight_decay=0.0>(w, g, m_f, lr, clip, ok)\n"
      "m_next: bfloat16[4] = Cast<to=16>(m_new)\n"
      "v_next: bfloat16[4] = Identity(v)\n";
  EXPECT_EQ(MomentsJoined(nodes),
            std::string("w_next: float[4], m_next: bfloat16[4] = "
                        "onnx_fp8.SGDMomentum<lr_scale=1.0, momentum=0.5, "
                        "nesterov=0, weight_decay=0.0>"
                        "(w, g, m, lr, clip, ok)\n"
                        "v_next: bfloat16[4] = Identity(v)\n") +
                kUpdates);
}

// All moments of an update join or none.
TEST(JoinMoments, AMomentThatIsReadElsewhereStaysApart) {
  for (const char* reader : {"more: float[4] = Neg(m_f)\noutput more\n",
                             "more: float[4] = Neg(v_f)\noutput more\n",
                             "more: float[4] = Neg(m_new)\noutput more\n",
                             "more: float[4] = Neg(v_new)\noutput more\n",
                             "output m_f\n", "output v_new\n"}) {
    ExpectApart(std::string(kDecodes) + kAdamUpdate + kEncodes + reader);
  }
}

// What the state keeps may be read, before and after the update.
TEST(JoinMoments, ReadersOfTheStateStay) {
  const std::string joined =
      MomentsJoined(std::string(kDecodes) + "before: bfloat16[4] = Neg(v)\n" +
                    kAdamUpdate + kEncodes +
                    "after: bfloat16[4] = Neg(v_next)\n"
                    "output before\noutput after\n");
  EXPECT_EQ(joined.find("Cast"), std::string::npos) << joined;
  EXPECT_EQ(joined.find("RoundStochastic"), std::string::npos) << joined;
  EXPECT_NE(joined.find("Neg(v)"), std::string::npos) << joined;
  EXPECT_NE(joined.find("Neg(v_next)"), std::string::npos) << joined;
}

TEST(JoinMoments, OtherMomentsStay) {
  const std::string update = kAdamUpdate, encodes = kEncodes;
  // One moment is kept as float16.
  std::string half = std::string(kDecodes) + update +
                     "m_h: float16[4] = Cast<to=10>(m_new)\n"
                     "m_next: bfloat16[4] = Cast<to=16>(m_h)\n" +
                     encodes.substr(encodes.find('\n') + 1);
  ExpectApart(half);
  // One is computed.
  const std::string sum =
      "m_g: float[4] = Cast<to=1>(m)\n"
      "m_f: float[4] = Add(m_g, g)\n"
      "v_f: float[4] = Cast<to=1>(v)\n";
  ExpectApart(sum + update + encodes);
}

// The kernel rounds a mean of squares by draws, and other moments to the
// nearest: it can't take over another rounding.
TEST(JoinMoments, OtherRoundingsStay) {
  const std::string drawn =
      "onnx_fp8.RoundStochastic<begin=0, row=1, shift=0, stream=7, stride=1>";
  const std::string begin = std::string(kDecodes) + kAdamUpdate;
  ExpectApart(begin +
              "m_next: bfloat16[4] = Cast<to=16>(m_new)\n"
              "v_next: bfloat16[4] = Cast<to=16>(v_new)\n");
  ExpectApart(begin + "m_next: bfloat16[4] = " + drawn +
              "(m_new, seed, step)\n"
              "v_next: bfloat16[4] = Cast<to=16>(v_new)\n");
  ExpectApart(begin + "m_next: bfloat16[4] = " + drawn +
              "(m_new, seed, step)\nv_next: bfloat16[4] = " + drawn +
              "(v_new, seed, step)\n");
  ExpectApart(
      "m_f: float[4] = Cast<to=1>(m)\n"
      "w_next: float[4], m_new: float[4] = onnx_fp8.SGDMomentum<lr_scale=1.0, "
      "momentum=0.5, nesterov=0, weight_decay=0.0>(w, g, m_f, lr, clip, ok)\n"
      "m_next: bfloat16[4] = " +
      drawn +
      "(m_new, seed, step)\n"
      "v_next: bfloat16[4] = Identity(v)\n");
}

TEST(JoinMoments, AKernelThatKnowsFloatsAloneIsLeft) {
  KernelRegistry kernels;
  kernels.Add(
      "Adam", [](KernelContext&) {}, {}, kDomain);
  const std::string text =
      std::string(kUpdateInputs) + kDecodes + kAdamUpdate + kEncodes + kUpdates;
  EXPECT_EQ(AfterPass(text, JoinMoments, kernels), text);
  EXPECT_EQ(AfterPass(text, JoinMoments, {}), text);
}

}  // namespace
}  // namespace onnx_fp8
