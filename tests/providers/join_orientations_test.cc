// SPDX-License-Identifier: Apache-2.0
#include "providers/join_orientations.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

KernelRegistry Joining() {
  KernelRegistry kernels;
  kernels.Add(
      "QuantizeBlockTranspose", [](KernelContext&) {}, {}, kDomain);
  return kernels;
}

std::string Joined(const std::string& text, const KernelRegistry& kernels) {
  auto graph = ParseGraph("graph \"g\" opset 24\n" + text);
  JoinOrientations(*graph, kernels);
  Verify(*graph);
  std::string after = Print(*graph);
  return after.substr(after.find('\n') + 1);
}

void ExpectNotJoined(const std::string& text) {
  EXPECT_EQ(Joined(text, Joining()), text);
}

constexpr char kTwo[] = R"(input x: float[16,32]
q: float8e4m3fn[16,32], s: float[16,1], a: float[] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
qt: float8e4m3fn[32,16], st: float[32,1], at: float[] = onnx_fp8.QuantizeColumns<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
m: float[] = Max(a, at)
output q
output s
output qt
output st
output m
)";

TEST(JoinOrientations, OneNodeQuantizesRowsAndColumns) {
  EXPECT_EQ(Joined(kTwo, Joining()), R"(input x: float[16,32]
q: float8e4m3fn[16,32], s: float[16,1], a: float[], qt: float8e4m3fn[32,16], st: float[32,1] = onnx_fp8.QuantizeBlockTranspose<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(x)
m: float[] = Max(a, a)
output q
output s
output qt
output st
output m
)");
  EXPECT_EQ(Joined(kTwo, {}), kTwo);
}

// The columns may come first, and then something that reads them.
TEST(JoinOrientations, TheOrderDoesNotMatter) {
  EXPECT_EQ(Joined(R"(input x: float[16,32]
qt: float8e5m2[32,16], st: float[32,1], at: float[] = onnx_fp8.QuantizeColumns<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(x)
f: float[32,16] = Cast<to=1>(qt)
q: float8e5m2[16,32], s: float[16,1] = onnx_fp8.QuantizeBlock<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(x)
g: float[16,32] = Cast<to=1>(q)
h: float[] = Neg(at)
output f
output g
output h
)",
                   Joining()),
            R"(input x: float[16,32]
q: float8e5m2[16,32], s: float[16,1], at: float[], qt: float8e5m2[32,16], st: float[32,1] = onnx_fp8.QuantizeBlockTranspose<block_columns=32, block_rows=1, pow2=1, q_max=57344.0, scale_to=1, to=19>(x)
f: float[32,16] = Cast<to=1>(qt)
g: float[16,32] = Cast<to=1>(q)
h: float[] = Neg(at)
output f
output g
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
    std::string text = kTwo;
    text.replace(text.find(of_columns), std::string(of_columns).size(), other);
    if (std::string(other).starts_with("to=19")) {
      text.replace(text.find("qt: float8e4m3fn"), 16, "qt: float8e5m2");
    }
    ExpectNotJoined(text);
  }
}

// Parts of 48 elements, and an amax that the graph returns.
TEST(JoinOrientations, WhatTheKernelCantWriteStays) {
  std::string parts = kTwo;
  for (size_t at; (at = parts.find("block_columns=0")) != std::string::npos;) {
    parts.replace(at, 15, "block_columns=48");
  }
  ExpectNotJoined(parts);
  ExpectNotJoined(std::string(kTwo) + "output at\n");
}

}  // namespace
}  // namespace onnx_fp8
