// SPDX-License-Identifier: Apache-2.0
#include "graph/node_cost.h"

#include <gtest/gtest.h>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The cost of the graph's only node.
NodeCost Cost(const std::string& text) {
  return CostOf(ParseGraph(text)->nodes().front());
}

TEST(NodeCost, Products) {
  NodeCost c = Cost(R"(
input a: float[2,3]
input b: float[3,5]
input c: float[5]
y: float[2,5] = Gemm(a, b, c)
)");
  EXPECT_EQ(c.flops, 2 * 2 * 5 * 3);
  EXPECT_EQ(c.bytes, 4 * (6 + 15 + 5 + 10));
  c = Cost(R"(
input a: float[3,2]
input b: float[3,5]
y: float[2,5] = Gemm<transA=1>(a, b)
)");
  EXPECT_EQ(c.flops, 2 * 2 * 5 * 3);
  c = Cost(R"(
input a: float[7,2,3]
input b: float[7,3,5]
y: float[7,2,5] = MatMul(a, b)
)");
  EXPECT_EQ(c.flops, 7 * 2 * 2 * 5 * 3);
}

TEST(NodeCost, BytesAreThoseThatAreKept) {
  auto graph = ParseGraph(R"(
input x: float[2,3]
y: float[2,3] = Neg(x)
)");
  graph->nodes().front().out(0)->narrow = DType::kBFloat16;
  EXPECT_EQ(CostOf(graph->nodes().front()).bytes, 4 * 6 + 2 * 6);
}

TEST(NodeCost, ScaledProductsOfAnyRank) {
  NodeCost c = Cost(R"(
input a: float8e4m3fn[4,2,3]
input s: float[]
input b: float8e4m3fn[5,3]
y: float[4,2,5] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(a, s, b, s)
)");
  EXPECT_EQ(c.flops, 2 * 8 * 5 * 3);
  EXPECT_EQ(c.bytes, 24 + 15 + 4 + 4 * 40);  // s once
  c = Cost(R"(
input a: float8e4m3fn[4,2,3]
input s: float[]
input b: float8e5m2[4,2,5]
y: float[3,5] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(a, s, b, s)
)");
  EXPECT_EQ(c.flops, 2 * 3 * 5 * 8);
  c = Cost(R"(
input a: float8e4m3fn[4,2,3]
input s: float[8,1]
input b: float8e4m3fn[5,3]
input t: float8e8m0[5,1]
input z: float[5]
y: float[4,2,5] = onnx_fp8.ScaledMatMulBlockBias<transA=0, transB=1, a_block_rows=1, a_block_columns=0, b_block_rows=1, b_block_columns=0>(a, s, b, t, z)
)");
  EXPECT_EQ(c.flops, 2 * 8 * 5 * 3);
  EXPECT_EQ(c.bytes, 24 + 4 * 8 + 15 + 5 + 4 * 5 + 4 * 40);
}

TEST(NodeCost, Attention) {
  // 2 batches, 4 heads in 2 groups, 3 rows, 5 columns; 8 deep, results 6 wide.
  std::string operands = R"(
input q: float[2,3,32]
input k: float[2,5,16]
input v: float[2,5,12]
)";
  std::string attributes = "heads=4, kv_heads=2, scale=1.0, causal=";
  EXPECT_EQ(Cost(operands +
                 "y: float[2,3,24], l: float[2,4,3] = "
                 "onnx_fp8.Attention<" +
                 attributes + "0>(q, k, v)\n")
                .flops,
            2 * 2 * 4 * 15 * (8 + 6));
  // Rows see 1, 2 and 3 columns.
  EXPECT_EQ(Cost(operands +
                 "y: float[2,3,24], l: float[2,4,3] = "
                 "onnx_fp8.Attention<" +
                 attributes + "1>(q, k, v)\n")
                .flops,
            2 * 2 * 4 * 6 * (8 + 6));
  // Scores, probabilities, q, k, v.
  EXPECT_EQ(Cost(operands + R"(
input dy: float[2,3,24]
input y: float[2,3,24]
input l: float[2,4,3]
dq: float[2,3,32], dk: float[2,5,16], dv: float[2,5,12] = onnx_fp8.AttentionGrad<)" +
                 attributes + "0>(dy, q, k, v, y, l)\n")
                .flops,
            2 * 2 * 4 * 15 * (8 + 6 + 8 + 8 + 6));
}

// 2 batches, 4 heads in 2 groups, 3 rows and columns, 8 deep.
TEST(NodeCost, PackedAttention) {
  const std::string attributes =
      "heads=4, kv_heads=2, scale=1.0, causal=0, perm=";
  for (auto [shape, y, perm] :
       {std::tuple{"[2,3,64]", "[2,3,32]", "[0,1,2]"},
        std::tuple{"[3,2,64]", "[3,2,32]", "[1,0,2]"}}) {
    const std::string x = std::string("input x: float") + shape + "\n";
    NodeCost c = Cost(x + "y: float" + y +
                      ", l: float[2,4,3] = onnx_fp8.AttentionPacked<" +
                      attributes + perm + ">(x)\n");
    EXPECT_EQ(c.flops, 2 * 2 * 4 * 9 * (8 + 8)) << perm;
    EXPECT_EQ(c.bytes, 4 * (2 * 3 * (64 + 32) + 2 * 4 * 3)) << perm;
    c = Cost(x + "input y: float" + y + "\ninput l: float[2,4,3]\nd: float" +
             shape + " = onnx_fp8.AttentionPackedGrad<" + attributes + perm +
             ">(y, x, y, l)\n");
    EXPECT_EQ(c.flops, 2 * 2 * 4 * 9 * (3 * 8 + 2 * 8)) << perm;
  }
}

TEST(NodeCost, CausalAttentionOfMoreRowsThanColumns) {
  // Rows see 1, 2, 2, 2 columns.
  EXPECT_EQ(Cost(R"(
input q: float[1,4,8]
input k: float[1,2,8]
y: float[1,4,8] = onnx_fp8.Attention<heads=1, kv_heads=1, scale=1.0, causal=1>(q, k, k)
)")
                .flops,
            2 * 7 * 16);
}

TEST(NodeCost, Convolutions) {
  // Each of 2 · 6 · 10 · 10 results is a sum over 2 channels · 3 · 3.
  EXPECT_EQ(Cost(R"(
input x: float[2,4,12,12]
input w: float[6,2,3,3]
y: float[2,6,10,10] = Conv<group=2>(x, w)
)")
                .flops,
            2 * (2 * 6 * 10 * 10) * (2 * 3 * 3));
  // Each of 2 · 4 · 5 · 5 operands goes into 3 channels · 2 · 2.
  EXPECT_EQ(Cost(R"(
input x: float[2,4,5,5]
input w: float[4,3,2,2]
y: float[2,3,6,6] = ConvTranspose(x, w)
)")
                .flops,
            2 * (2 * 4 * 5 * 5) * (3 * 2 * 2));
}

TEST(NodeCost, IntegerProducts) {
  EXPECT_EQ(Cost(R"(
input a: uint8[2,3]
input b: uint8[3,5]
y: int32[2,5] = MatMulInteger(a, b)
)")
                .flops,
            2 * 2 * 5 * 3);
  EXPECT_EQ(Cost(R"(
input x: uint8[2,4,12,12]
input s: float[]
input z: uint8[]
input w: uint8[6,4,3,3]
y: uint8[2,6,10,10] = QLinearConv(x, s, z, w, s, z, s, z)
)")
                .flops,
            2 * (2 * 6 * 10 * 10) * (4 * 3 * 3));
}

TEST(NodeCost, EinsumByAllItsLabels) {
  auto flops = [](const std::string& equation, const std::string& a,
                  const std::string& b) {
    return Cost("input a: float[" + a + "]\ninput b: float[" + b +
                "]\ny: float[1] = Einsum<equation=\"" + equation +
                "\">(a, b)\n")
        .flops;
  };
  EXPECT_EQ(flops("ij,jk->ik", "2,3", "3,5"), 2 * 2 * 3 * 5);
  EXPECT_EQ(flops("ab, cd ->", "2,3", "5,7"), 2 * 2 * 3 * 5 * 7);
  EXPECT_EQ(flops("...i,i...->...", "7,2,3", "3,7,2"), 2 * 7 * 2 * 3);
  EXPECT_EQ(flops("...i,j...", "1,3", "5,7"), 2 * 7 * 3 * 5);
}

TEST(NodeCost, RecurrentLayersAndWindows) {
  // 6 steps of 2 samples; 4 gates of 5, from 3 inputs and from 5.
  EXPECT_EQ(Cost(R"(
input x: float[6,2,3]
input w: float[1,20,3]
input r: float[1,20,5]
y: float[6,1,2,5] = LSTM<hidden_size=5>(x, w, r)
)")
                .flops,
            2 * 6 * 2 * 20 * (3 + 5));
  EXPECT_EQ(Cost(R"(
input x: float[1,2,8,8]
y: float[1,2,4,4] = MaxPool<kernel_shape=[5,5], strides=[1,1]>(x)
)")
                .flops,
            2 * 4 * 4 * 25);
  EXPECT_EQ(Cost(R"(
input x: float[1,9,2]
y: float[1,9,2] = LRN<size=3>(x)
)")
                .flops,
            18 * 3);
}

TEST(NodeCost, OthersByTheirLargestTensor) {
  NodeCost c = Cost(R"(
input x: float[10,10]
y: float[10] = ReduceSum(x)
)");
  EXPECT_EQ(c.flops, 100);
  EXPECT_EQ(c.bytes, 440);
  c = Cost(R"(
input x: float[?,10]
y: float[10] = ReduceSum(x)
)");
  EXPECT_EQ(c.flops, 10);
}

}  // namespace
}  // namespace onnx_fp8
