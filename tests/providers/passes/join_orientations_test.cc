// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_orientations.h"

#include <gtest/gtest.h>

#include "tests/providers/after_pass.h"

namespace onnx_fp8 {
namespace {

KernelRegistry Joining() {
  KernelRegistry kernels;
  kernels.Add(
      "QuantizeBlockTranspose", [](KernelContext&) {}, {}, kDomain);
  return kernels;
}

std::string Joined(const std::string& text, const KernelRegistry& kernels) {
  return AfterPass(
      text,
      [](Graph& graph, const KernelRegistry& all) {
        JoinOrientations(graph, all);
      },
      kernels);
}

void ExpectNotJoined(const std::string& text) {
  EXPECT_EQ(Joined(text, Joining()), text);
}

constexpr char kTwoCasts[] = R"(input x: float[2,80,32]
q: float8e4m3fn[2,80,32], s: float[160,1], a: float[] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
qt: float8e4m3fn[32,160], st: float[32,1], at: float[], c: float[32] = onnx_fp8.QuantizeColumns<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
m: float[] = Max(a, at)
n: float[32] = Neg(c)
output q
output s
output qt
output st
output m
output n
)";

TEST(JoinOrientations, OneNodeQuantizesRowsAndColumns) {
  EXPECT_EQ(Joined(kTwoCasts, Joining()), R"(input x: float[2,80,32]
q: float8e4m3fn[2,80,32], s: float[160,1], a: float[], qt: float8e4m3fn[32,160], st: float[32,1], c: float[32] = onnx_fp8.QuantizeBlockTranspose<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
m: float[] = Max(a, a)
n: float[32] = Neg(c)
output q
output s
output qt
output st
output m
output n
)");
  EXPECT_EQ(Joined(kTwoCasts, {}), kTwoCasts);
}

// A second run of the rows' node stands beside the columns' node.
constexpr char kSecondRun[] = R"(input g: float[160,32]
param w: float[160,32]
q: float8e4m3fn[160,32], s: float[160,1] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(w)
f: float[160,32] = Cast<to=1>(q)
q2: float8e4m3fn[160,32], s2: float[160,1] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(w)
h: float[160,32] = Cast<to=1>(q2)
qt: float8e4m3fn[32,160], st: float[32,1] = onnx_fp8.QuantizeColumns<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(w)
c: float[32,160] = Cast<to=1>(qt)
output f
output h
output c
)";

TEST(JoinOrientations, TheSecondRunIsJoined) {
  const std::string joined = Joined(kSecondRun, Joining());
  EXPECT_NE(joined.find("q: float8e4m3fn[160,32], s: float[160,1] = "
                        "onnx_fp8.QuantizeBlock<"),
            std::string::npos)
      << joined;
  EXPECT_NE(joined.find("q2: float8e4m3fn[160,32], s2: float[160,1], _, qt: "),
            std::string::npos)
      << joined;
}

TEST(JoinOrientations, LeavesWeightsApart) {
  const auto without_weights = [](Graph& graph, const KernelRegistry& all) {
    JoinOrientations(graph, all, false);
  };
  EXPECT_EQ(AfterPass(kSecondRun, without_weights, Joining()),
            AfterPass(kSecondRun, [](Graph&, const KernelRegistry&) {}, {}));
  EXPECT_EQ(AfterPass(kTwoCasts, without_weights, Joining()),
            Joined(kTwoCasts, Joining()));
}

// Each quantizer decodes the weight for itself, which lives in fewer bytes.
constexpr char kTwoDecodings[] = R"(param w: bfloat16[160,32]
correction c: int8[160,32]
d: float[160,32] = onnx_fp8.DecodeMaster<correction=3>(w, c)
q: float8e4m3fn[160,32], s: float[160,1] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(d)
e: float[160,32] = onnx_fp8.DecodeMaster<correction=3>(w, c)
qt: float8e4m3fn[32,160], st: float[32,1] = onnx_fp8.QuantizeColumns<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(e)
output q
output s
output qt
output st
)";

constexpr char kOneDecoding[] = R"(param w: bfloat16[160,32]
correction c: int8[160,32]
d: float[160,32] = onnx_fp8.DecodeMaster<correction=3>(w, c)
q: float8e4m3fn[160,32], s: float[160,1], _, qt: float8e4m3fn[32,160], st: float[32,1] = onnx_fp8.QuantizeBlockTranspose<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(d)
output q
output s
output qt
output st
)";

TEST(JoinOrientations, TwoDecodingsOfAWeightAreOneOperand) {
  ExpectNotJoined(kTwoDecodings);
  const auto decoded = [](Graph& graph, const KernelRegistry& all) {
    JoinOrientations(graph, all, true, true);
  };
  EXPECT_EQ(AfterPass(kTwoDecodings, decoded, Joining()), kOneDecoding);
  // A second reader keeps its decoding; another weight has another one.
  std::string read = kTwoDecodings;
  read.insert(read.find("output q"), "r: float[160,32] = Neg(e)\n");
  read += "output r\n";
  const std::string kept = AfterPass(read, decoded, Joining());
  EXPECT_NE(kept.find("QuantizeBlockTranspose<"), std::string::npos) << kept;
  EXPECT_NE(kept.find("\ne: "), std::string::npos) << kept;
  std::string other = kTwoDecodings;
  other.insert(0, "param v: bfloat16[160,32]\n");
  other.replace(other.rfind("(w, c)"), 6, "(v, c)");
  EXPECT_EQ(AfterPass(other, decoded, Joining()), other);
}

// The text with another decoding, which reads no correction.
std::string WithDecoding(std::string text, const std::string& decoding) {
  const std::string correction = "correction c: int8[160,32]\n";
  text.erase(text.find(correction), correction.size());
  const std::string from = "onnx_fp8.DecodeMaster<correction=3>(w, c)";
  for (size_t at; (at = text.find(from)) != std::string::npos;) {
    text.replace(at, from.size(), decoding);
  }
  return text;
}

TEST(JoinOrientations, TwoCastsOfAWeightAreOneOperand) {
  const auto decoded = [](Graph& graph, const KernelRegistry& all) {
    JoinOrientations(graph, all, true, true);
  };
  const std::string casts = WithDecoding(kTwoDecodings, "Cast<to=1>(w)");
  ExpectNotJoined(casts);
  EXPECT_EQ(AfterPass(casts, decoded, Joining()),
            WithDecoding(kOneDecoding, "Cast<to=1>(w)"));
  // Casts of another value than a weight are apart.
  std::string activation = casts;
  activation.replace(activation.find("param w"), 7, "input w");
  EXPECT_EQ(AfterPass(activation, decoded, Joining()), activation);
}

// The columns may come first, as a weight's do where the forward pass reads
// them. Nodes keep their order.
TEST(JoinOrientations, TheFirstOfBothHasThePlace) {
  EXPECT_EQ(Joined(R"(input x: float[16,32]
input y: float[16,32]
qx: float8e5m2[32,16], sx: float[32,1], ax: float[] = onnx_fp8.QuantizeColumns<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(x)
f: float[32,16] = Cast<to=1>(qx)
qy: float8e5m2[32,16], sy: float[32,1], ay: float[] = onnx_fp8.QuantizeColumns<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(y)
g: float[32,16] = Cast<to=1>(qy)
ry: float8e5m2[16,32], ty: float[16,1] = onnx_fp8.QuantizeBlock<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(y)
rx: float8e5m2[16,32], tx: float[16,1] = onnx_fp8.QuantizeBlock<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(x)
h: float[] = Neg(ax)
output f
output g
output ry
output rx
output h
)",
                   Joining()),
            R"(input x: float[16,32]
input y: float[16,32]
rx: float8e5m2[16,32], tx: float[16,1], ax: float[], qx: float8e5m2[32,16], sx: float[32,1] = onnx_fp8.QuantizeBlockTranspose<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(x)
f: float[32,16] = Cast<to=1>(qx)
ry: float8e5m2[16,32], ty: float[16,1], ay: float[], qy: float8e5m2[32,16], sy: float[32,1] = onnx_fp8.QuantizeBlockTranspose<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(y)
g: float[32,16] = Cast<to=1>(qy)
h: float[] = Neg(ax)
output f
output g
output ry
output rx
output h
)");
}

TEST(JoinOrientations, OtherFormatsStay) {
  for (auto [of_columns, other] :
       {std::pair{"to=17>(x)\nm", "to=19>(x)\nm"},
        {"pow2=0, q_max=448.0, scale_to=1, to=17>(x)\nm",
         "pow2=1, q_max=448.0, scale_to=1, to=17>(x)\nm"},
        {"q_max=448.0, scale_to=1, to=17>(x)\nm",
         "q_max=240.0, scale_to=1, to=17>(x)\nm"}}) {
    std::string text = kTwoCasts;
    text.replace(text.find(of_columns), std::string(of_columns).size(), other);
    if (std::string(other).starts_with("to=19")) {
      text.replace(text.find("qt: float8e4m3fn"), 16, "qt: float8e5m2");
    }
    ExpectNotJoined(text);
  }
}

// kTwoCasts with other text.
std::string Replaced(const std::string& from, const std::string& to) {
  std::string text = kTwoCasts;
  for (size_t at; (at = text.find(from)) != std::string::npos;) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// Parts of 48 elements, and an amax that the graph returns.
TEST(JoinOrientations, WhatTheKernelCantWriteStays) {
  std::string parts = Replaced("block_columns=0", "block_columns=48");
  parts.replace(parts.find("st: float[32,1]"), 15, "st: float[32,4]");
  ExpectNotJoined(parts);
  ExpectNotJoined(std::string(kTwoCasts) + "output at\n");
}

TEST(JoinOrientations, ShortColumnsStay) {
  std::string text = Replaced("2,80,32", "2,64,32");
  text.replace(text.find("s: float[160,1]"), 15, "s: float[128,1]");
  text.replace(text.find("[32,160]"), 8, "[32,128]");
  ExpectNotJoined(text);
}

}  // namespace
}  // namespace onnx_fp8
