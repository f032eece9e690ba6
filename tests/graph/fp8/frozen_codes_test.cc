// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/frozen_codes.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

std::string AsHinted(const std::string& hint) { return hint; }

std::vector<FrozenCodes> Kept(Graph& graph) {
  auto made = KeepFrozenCodes(graph, AsHinted);
  Verify(graph);
  for (const FrozenCodes& one : made) Verify(*one.maker);
  return made;
}

// The step reads the amax of the frozen weight, too.
constexpr char kStepWithFrozen[] = R"(graph "g" opset 24
input x: float[2,4]
frozen f: float[4,2]
xq: float8e4m3fn[2,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
fq: float8e4m3fn[4,2], fs: float[], fa: float[] = onnx_fp8.QuantizeTensor<fqn="a", operand="weight", q_max=448.0, to=17>(f)
y: float[2,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, fq, fs)
dq: float8e4m3fn[2,2], ds: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(y)
z: float[2,4] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(dq, ds, fq, fs)
top: float[] = Identity(fa)
output z
output top
)";

// Another graph of the same session.
constexpr char kForwardWithFrozen[] = R"(graph "g" opset 24
input x: float[3,4]
frozen f: float[4,2]
other: float8e4m3fn[4,2], scale: float[] = onnx_fp8.QuantizeTensor<fqn="b", operand="weight", q_max=448.0, to=17>(f)
xq: float8e4m3fn[3,4], xs: float[] = onnx_fp8.QuantizeTensor<q_max=448.0, to=17>(x)
y: float[3,2] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(xq, xs, other, scale)
output y
)";

TEST(KeepFrozenCodes, BothOrientationsReadOneStateAndNoFloat) {
  auto graph = ParseGraph(kStepWithFrozen);
  const std::vector<FrozenCodes> made = Kept(*graph);
  ASSERT_EQ(made.size(), 1u);
  EXPECT_EQ(made[0].weights, std::vector<std::string>{"f"});
  ASSERT_EQ(made[0].copies.size(), 3u);
  EXPECT_EQ(graph->Find("f"), nullptr);
  EXPECT_TRUE(graph->state.empty());
  const Value* codes = graph->Find(made[0].copies[0]);
  ASSERT_NE(codes, nullptr);
  EXPECT_EQ(codes->role, Role::kWeightCopy);
  EXPECT_EQ(codes->dtype, DType::kE4M3);
  EXPECT_EQ(codes->uses.size(), 2u);
  EXPECT_EQ(graph->nodes().size(), 5u);
}

TEST(KeepFrozenCodes, TheMakerBindsTheSameState) {
  auto graph = ParseGraph(kStepWithFrozen);
  const std::vector<FrozenCodes> made = Kept(*graph);
  ASSERT_EQ(made.size(), 1u);
  const Graph& maker = *made[0].maker;
  EXPECT_TRUE(maker.inputs.empty());
  EXPECT_TRUE(maker.outputs.empty());
  EXPECT_EQ(maker.nodes().size(), 1u);
  ASSERT_EQ(maker.state.size(), made[0].copies.size());
  for (size_t i = 0; i < maker.state.size(); ++i) {
    EXPECT_EQ(maker.state[i].state->name, made[0].copies[i]);
    EXPECT_EQ(maker.state[i].next, maker.nodes().front().out(i));
  }
  EXPECT_EQ(maker.Find("f")->role, Role::kFrozen);
}

TEST(KeepFrozenCodes, GraphsOfASessionShareTheState) {
  auto step = ParseGraph(kStepWithFrozen);
  auto forward = ParseGraph(kForwardWithFrozen);
  const std::vector<FrozenCodes> first = Kept(*step), second = Kept(*forward);
  ASSERT_EQ(first.size(), 1u);
  ASSERT_EQ(second.size(), 1u);
  ASSERT_EQ(second[0].copies.size(), 2u);
  for (size_t i : {0, 1}) EXPECT_EQ(second[0].copies[i], first[0].copies[i]);
}

TEST(KeepFrozenCodes, OtherCodesOfAWeightHaveOtherNames) {
  std::string text = kForwardWithFrozen;
  text.replace(text.find("448.0"), 5, "224.0");
  auto graph = ParseGraph(kForwardWithFrozen), other = ParseGraph(text);
  EXPECT_NE(Kept(*graph)[0].copies[0], Kept(*other)[0].copies[0]);
}

TEST(KeepFrozenCodes, WhatMovesIsLeftAlone) {
  std::string text = kForwardWithFrozen;
  text.replace(text.find("frozen f"), 8, "param f");
  auto graph = ParseGraph(text);
  const std::string before = Print(*graph);
  EXPECT_TRUE(Kept(*graph).empty());
  EXPECT_EQ(Print(*graph), before);
}

// Codes of columns, made of the decoded codes of rows.
TEST(KeepFrozenCodes, CodesOfDecodedCodesAreMadeOfTheWeight) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input x: float[4,8]
frozen f: float[4,8]
q: float8e4m3fn[4,8], s: float[4,1] = onnx_fp8.QuantizeBlock<block_columns=0, block_rows=1, pow2=0, q_max=448.0, scale_to=1, to=17>(f)
d: float[4,8] = onnx_fp8.DequantizeBlock<block_columns=0, block_rows=1>(q, s)
q2: float8e4m3fn[4,8], s2: float[1,8] = onnx_fp8.QuantizeBlock<block_columns=1, block_rows=0, pow2=0, q_max=448.0, scale_to=1, to=17>(d)
d2: float[4,8] = onnx_fp8.DequantizeBlock<block_columns=1, block_rows=0>(q2, s2)
y: float[4,8] = Add(x, d)
z: float[4,8] = Add(y, d2)
output z
)");
  const std::vector<FrozenCodes> made = Kept(*graph);
  ASSERT_EQ(made.size(), 2u);
  for (const FrozenCodes& one : made) {
    EXPECT_EQ(one.weights, std::vector<std::string>{"f"});
  }
  EXPECT_EQ(made[0].maker->nodes().size() + made[1].maker->nodes().size(), 4u);
  EXPECT_EQ(graph->Find("f"), nullptr);
  EXPECT_EQ(graph->nodes().size(), 4u);
}

}  // namespace
}  // namespace onnx_fp8
