// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_masters.h"

#include <gtest/gtest.h>

#include <string>

#include "providers/cpu/cpu_provider.h"
#include "providers/passes/join_moments.h"
#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

constexpr char kMasterInputs[] = R"(input g: float[4]
input lr: float[]
input clip: float[]
input ok: bool[]
input step: int64[]
param w: bfloat16[4]
correction w_c: int8[4]
moment m: bfloat16[4]
moment v: bfloat16[4]
counter seed: int64[]
)";

constexpr char kDecodesMaster[] =
    "w_f: float[4] = onnx_fp8.DecodeMaster<correction=3>(w, w_c)\n";
constexpr char kUpdatesMaster[] =
    "w_new: float[4] = onnx_fp8.SGD<lr_scale=1.0, weight_decay=0.0>"
    "(w_f, g, lr, clip, ok)\n";
constexpr char kEncodesMaster[] =
    "w_next: bfloat16[4], w_c_next: int8[4] = "
    "onnx_fp8.EncodeMaster<correction=3>(w_new)\n";
constexpr char kSplitState[] =
    "update w = w_next\n"
    "update w_c = w_c_next\n";

constexpr char kWidens[] = "w_f: float[4] = Cast<to=1>(w)\n";
constexpr char kRoundsMaster[] =
    "w_next: bfloat16[4] = onnx_fp8.RoundStochastic<begin=6, row=2, shift=4, "
    "stream=77, stride=8>(w_new, seed, step)\n";
constexpr char kDrawnState[] = "update w = w_next\n";

std::string MastersJoined(const std::string& nodes,
                          void (*pass)(Graph&,
                                       const KernelRegistry&) = JoinMasters) {
  const std::string text = AfterPass(kMasterInputs + nodes, pass, CpuKernels());
  return text.substr(text.find("counter seed: int64[]\n") + 22);
}

std::string WithChange(std::string text, const std::string& from,
                       const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(JoinMasters, TheUpdateReadsAndWritesTheHalvesAndTheirCorrections) {
  EXPECT_EQ(MastersJoined(std::string(kDecodesMaster) + kUpdatesMaster +
                          kEncodesMaster + kSplitState),
            std::string("w_next: bfloat16[4], w_c_next: int8[4] = "
                        "onnx_fp8.SGD<correction=3, lr_scale=1.0, "
                        "weight_decay=0.0>(w, g, lr, clip, ok, w_c)\n") +
                kSplitState);
}

TEST(JoinMasters, WithoutACorrectionTheUpdateDraws) {
  EXPECT_EQ(MastersJoined(std::string(kWidens) + kUpdatesMaster +
                          kRoundsMaster + kDrawnState),
            std::string("w_next: bfloat16[4] = onnx_fp8.SGD<begin=6, "
                        "lr_scale=1.0, master_stream=77, row=2, shift=4, "
                        "stride=8, weight_decay=0.0>"
                        "(w, g, lr, clip, ok, seed, step)\n") +
                kDrawnState);
}

// The update needs the number before it runs.
TEST(JoinMasters, TheNumberOfTheUpdateMayBeComputedLater) {
  const std::string number = "number: int64[] = Add(step, step)\n";
  EXPECT_EQ(
      MastersJoined(std::string(kWidens) + kUpdatesMaster + number +
                    WithChange(kRoundsMaster, "seed, step", "seed, number") +
                    kDrawnState),
      number +
          "w_next: bfloat16[4] = onnx_fp8.SGD<begin=6, lr_scale=1.0, "
          "master_stream=77, row=2, shift=4, stride=8, "
          "weight_decay=0.0>(w, g, lr, clip, ok, seed, number)\n" +
          kDrawnState);
}

TEST(JoinMasters, OtherReadersKeepTheDecodedParameter) {
  const std::string reader = "more: float[4] = Neg(w_f)\n";
  const std::string output = "output more\n";
  EXPECT_EQ(
      MastersJoined(std::string(kDecodesMaster) + reader + kUpdatesMaster +
                    kEncodesMaster + output + kSplitState),
      kDecodesMaster + reader +
          "w_next: bfloat16[4], w_c_next: int8[4] = "
          "onnx_fp8.SGD<correction=3, lr_scale=1.0, weight_decay=0.0>"
          "(w, g, lr, clip, ok, w_c)\n" +
          output + kSplitState);
  const std::string returned =
      MastersJoined(std::string(kWidens) + kUpdatesMaster + kRoundsMaster +
                    kDrawnState + "output w_f\n");
  EXPECT_TRUE(returned.starts_with(kWidens)) << returned;
  EXPECT_NE(returned.find("(w, g, lr,"), std::string::npos) << returned;
}

TEST(JoinMasters, ANewFloatThatOthersReadStaysApart) {
  const std::string nodes =
      std::string(kDecodesMaster) + kUpdatesMaster + kEncodesMaster;
  for (const char* reader :
       {"more: float[4] = Neg(w_new)\noutput more\n", "output w_new\n"}) {
    const std::string all = nodes + reader + kSplitState;
    EXPECT_EQ(MastersJoined(all), all);
  }
}

TEST(JoinMasters, OtherCodecsStayApart) {
  const std::string split = std::string(kDecodesMaster) + kUpdatesMaster +
                            kEncodesMaster + kSplitState;
  const std::string drawn =
      std::string(kWidens) + kUpdatesMaster + kRoundsMaster + kDrawnState;
  const std::string encoded =
      std::string(kWidens) + kUpdatesMaster + kEncodesMaster + kSplitState;
  const std::string rounded = std::string(kDecodesMaster) + kUpdatesMaster +
                              kRoundsMaster + kDrawnState;
  const std::string nearest = std::string(kWidens) + kUpdatesMaster +
                              "w_next: bfloat16[4] = Cast<to=16>(w_new)\n" +
                              kDrawnState;
  for (const std::string& text :
       {encoded, rounded, nearest,
        WithChange(
            WithChange(WithChange(split, "w_c_next: int8", "w_c_next: int16"),
                       "EncodeMaster<correction=3>",
                       "EncodeMaster<correction=5>"),
            "update w_c = w_c_next\n", ""),
        WithChange(drawn, "Cast<to=1>(w)", "Neg(g)")}) {
    EXPECT_EQ(MastersJoined(text), text);
  }
}

constexpr char kAdamOfMasters[] =
    "w_new: float[4], m_new: float[4], v_new: float[4] = onnx_fp8.Adam"
    "<eps=0.5, lr_scale=1.0, one_minus_beta1=0.5, one_minus_beta2=0.25, "
    "weight_decay=0.0>(w_f, g, m_f, v_f, step, lr, clip, ok)\n";
constexpr char kDecodesMoments[] = R"(m_f: float[4] = Cast<to=1>(m)
v_f: float[4] = Cast<to=1>(v)
)";
constexpr char kMeasures[] =
    "amax: float[] = onnx_fp8.UpdateAmax<eps=0.5, one_minus_beta1=0.5, "
    "one_minus_beta2=0.25>(m_new, v_new, step)\n";
constexpr char kEncodesMoments[] = R"(m_next: bfloat16[4] = Cast<to=16>(m_new)
v_next: bfloat16[4] = onnx_fp8.RoundStochastic<begin=6, row=2, shift=4, stream=78, stride=8>(v_new, seed, step)
)";
constexpr char kMomentState[] = "update m = m_next\nupdate v = v_next\n";

void JoinBoth(Graph& graph, const KernelRegistry& kernels) {
  JoinMasters(graph, kernels);
  JoinMoments(graph, kernels);
}

TEST(JoinMasters, MomentsFollowTheCorrection) {
  EXPECT_EQ(
      MastersJoined(std::string(kDecodesMaster) + kDecodesMoments +
                        kAdamOfMasters + kMeasures + kEncodesMaster +
                        kEncodesMoments + "output amax\n" + kSplitState +
                        kMomentState,
                    JoinBoth),
      std::string(
          "w_next: bfloat16[4], m_next: bfloat16[4], v_next: bfloat16[4], "
          "w_c_next: int8[4], amax: float[] = onnx_fp8.Adam<begin=6, "
          "correction=3, eps=0.5, lr_scale=1.0, one_minus_beta1=0.5, "
          "one_minus_beta2=0.25, row=2, shift=4, stream=78, stride=8, "
          "weight_decay=0.0>"
          "(w, g, m, v, step, lr, clip, ok, w_c, seed, step)\n") +
          "output amax\n" + kSplitState + kMomentState);
}

// An update has one set of places, but a stream for each draw.
TEST(JoinMasters, MomentsThatDrawShareThePlaces) {
  const std::string nodes = std::string(kWidens) + kDecodesMoments +
                            kAdamOfMasters + kMeasures + kRoundsMaster +
                            kEncodesMoments + "output amax\n" + kDrawnState +
                            kMomentState;
  const std::string joined = MastersJoined(nodes, JoinBoth);
  EXPECT_NE(joined.find("master_stream=77,"), std::string::npos) << joined;
  EXPECT_NE(joined.find("stream=78,"), std::string::npos) << joined;
  EXPECT_NE(
      joined.find("(w, g, m, v, step, lr, clip, ok, seed, step, seed, step)"),
      std::string::npos)
      << joined;
  for (const auto& [from, to] :
       {std::pair{"begin=6, row=2, shift=4, stream=78",
                  "begin=7, row=2, "
                  "shift=4, stream=78"},
        std::pair{"stream=78, stride=8", "stream=78, stride=9"}}) {
    const std::string apart =
        MastersJoined(WithChange(nodes, from, to), JoinBoth);
    EXPECT_NE(apart.find("(w, g, m_f, v_f, step, lr, clip, ok, seed, step)"),
              std::string::npos)
        << apart;
  }
}

// Draws without places have those of a whole tensor.
TEST(JoinMasters, MomentsShareThePlacesThatNobodyWrites) {
  const std::string nodes =
      std::string(kWidens) + kDecodesMoments + kAdamOfMasters +
      WithChange(kRoundsMaster, "begin=6, row=2, shift=4, stream=77, stride=8",
                 "stream=77") +
      kEncodesMoments + kDrawnState + kMomentState;
  const std::string apart = MastersJoined(nodes, JoinBoth);
  EXPECT_NE(apart.find("(w, g, m_f, v_f, step, lr, clip, ok, seed, step)"),
            std::string::npos)
      << apart;
  const std::string joined = MastersJoined(
      WithChange(nodes, "begin=6, row=2, shift=4, stream=78, stride=8",
                 "begin=0, row=1, shift=0, stream=78, stride=1"),
      JoinBoth);
  EXPECT_NE(
      joined.find("(w, g, m, v, step, lr, clip, ok, seed, step, seed, step)"),
      std::string::npos)
      << joined;
}

TEST(JoinMasters, AKernelThatKnowsFloatsAloneIsLeft) {
  KernelRegistry kernels;
  kernels.Add(
      "SGD", [](KernelContext&) {}, {}, kDomain);
  const std::string text = std::string(kMasterInputs) + kDecodesMaster +
                           kUpdatesMaster + kEncodesMaster + kSplitState;
  EXPECT_EQ(AfterPass(text, JoinMasters, kernels), text);
  EXPECT_EQ(AfterPass(text, JoinMasters, {}), text);
}

}  // namespace
}  // namespace onnx_fp8
