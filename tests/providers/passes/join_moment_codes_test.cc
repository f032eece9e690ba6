// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "providers/cpu/cpu_provider.h"
#include "providers/passes/join_moments.h"
#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

constexpr char kCodedInputs[] = R"(input g: float[2,130]
input lr: float[]
input clip: float[]
input ok: bool[]
input step: int64[]
param w: float[2,130]
moment m: float8e4m3fn[2,130]
moment m_s: float[2,2]
moment v: float8e4m3fn[2,130]
moment v_s: float[2,2]
counter seed: int64[]
)";

constexpr char kDecodedCodes[] =
    R"(m_f: float[2,130] = onnx_fp8.DecodeMoment<squared=0>(m, m_s)
v_f: float[2,130] = onnx_fp8.DecodeMoment<squared=1>(v, v_s)
)";

constexpr char kUpdatedFloats[] =
    "w_next: float[2,130], m_new: float[2,130], v_new: float[2,130] = "
    "onnx_fp8.AdamW<eps=0.5, lr_scale=1.0, one_minus_beta1=0.5, "
    "one_minus_beta2=0.25, weight_decay=0.0>"
    "(w, g, m_f, v_f, step, lr, clip, ok)\n";

constexpr char kEncodedCodes[] =
    R"(m_next: float8e4m3fn[2,130], m_s_next: float[2,2] = onnx_fp8.EncodeMoment(m_new, m, m_s, ok)
v_next: float8e4m3fn[2,130], v_s_next: float[2,2] = onnx_fp8.EncodeSecondMoment<begin=6, row=2, shift=4, stream=77, stride=8>(v_new, v, v_s, ok, seed, step)
)";

constexpr char kNewCodes[] = R"(update w = w_next
update m = m_next
update v = v_next
update m_s = m_s_next
update v_s = v_s_next
)";

std::string CodesJoined(const std::string& nodes) {
  const std::string text =
      AfterPass(kCodedInputs + nodes + kNewCodes, JoinMoments, CpuKernels());
  return text.substr(text.find("counter seed: int64[]\n") + 22);
}

std::string Without(std::string text, const std::string& from,
                    const std::string& to) {
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(JoinMomentCodes, ScalesFollowOtherOperandsAndResults) {
  EXPECT_EQ(
      CodesJoined(std::string(kDecodedCodes) + kUpdatedFloats + kEncodedCodes),
      std::string(
          "w_next: float[2,130], m_next: float8e4m3fn[2,130], "
          "v_next: float8e4m3fn[2,130], m_s_next: float[2,2], "
          "v_s_next: float[2,2] = onnx_fp8.AdamW<begin=6, eps=0.5, "
          "lr_scale=1.0, one_minus_beta1=0.5, one_minus_beta2=0.25, row=2, "
          "shift=4, stream=77, stride=8, weight_decay=0.0>"
          "(w, g, m, v, step, lr, clip, ok, seed, step, m_s, v_s)\n") +
          kNewCodes);
}

TEST(JoinMomentCodes, TheAmaxFollowsTheScales) {
  const std::string meter =
      "amax: float[] = onnx_fp8.UpdateAmax<eps=0.5, one_minus_beta1=0.5, "
      "one_minus_beta2=0.25>(m_new, v_new, step)\n";
  const std::string joined =
      CodesJoined(std::string(kDecodedCodes) + kUpdatedFloats + kEncodedCodes +
                  meter + "twice: float[] = Add(amax, amax)\n");
  EXPECT_NE(
      joined.find("v_s_next: float[2,2], amax: float[] = onnx_fp8.AdamW<"),
      std::string::npos)
      << joined;
  EXPECT_EQ(joined.find("UpdateAmax"), std::string::npos) << joined;
}

TEST(JoinMomentCodes, AMomentumHasNoDraws) {
  const std::string joined = CodesJoined(
      "m_f: float[2,130] = onnx_fp8.DecodeMoment<squared=0>(m, m_s)\n"
      "w_next: float[2,130], m_new: float[2,130] = onnx_fp8.SGDMomentum"
      "<lr_scale=1.0, momentum=0.5, nesterov=0, weight_decay=0.0>"
      "(w, g, m_f, lr, clip, ok)\n"
      "m_next: float8e4m3fn[2,130], m_s_next: float[2,2] = "
      "onnx_fp8.EncodeMoment(m_new, m, m_s, ok)\n"
      "v_next: float8e4m3fn[2,130] = Identity(v)\n"
      "v_s_next: float[2,2] = Identity(v_s)\n");
  EXPECT_NE(joined.find("(w, g, m, lr, clip, ok, m_s)\n"), std::string::npos)
      << joined;
  EXPECT_EQ(joined.find("EncodeMoment"), std::string::npos) << joined;
}

// The kernel keeps the codes that it reads, if its own `ok` is false.
TEST(JoinMomentCodes, CodecsOfOtherStateStayApart) {
  const std::string nodes =
      std::string(kDecodedCodes) + kUpdatedFloats + kEncodedCodes;
  const std::pair<const char*, const char*> changes[] = {
      {"(m_new, m, m_s, ok)", "(m_new, v, m_s, ok)"},
      {"(m_new, m, m_s, ok)", "(m_new, m, v_s, ok)"},
      {"(m_new, m, m_s, ok)", "(m_new, m, m_s, other)"},
      {"squared=1", "squared=0"},
      {"squared=0", "squared=1"},
      {"(v_new, v, v_s, ok,", "(m_f, v, v_s, ok,"}};
  for (auto [from, to] : changes) {
    const std::string changed =
        "other: bool[] = Not(ok)\n" + Without(nodes, from, to);
    EXPECT_EQ(CodesJoined(changed), changed + kNewCodes) << to;
  }
}

}  // namespace
}  // namespace onnx_fp8
