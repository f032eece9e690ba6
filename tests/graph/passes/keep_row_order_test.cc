// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/keep_row_order.h"

#include <gtest/gtest.h>

#include "graph/passes/fuse_attention.h"
#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

// A layer of x (2,3,8), 2 batches of 3 rows, between two Transposes.
const char kTurnedLayer[] = R"(graph "g" opset 24
input x: float[2,3,8]
const w: float[8,8] = {...}
const b: float[8] = {...}
const joined: int64[2] = {6,8}
const split: int64[3] = {3,2,8}
t: float[3,2,8] = Transpose<perm=[1,0,2]>(x)
rows: float[6,8] = Reshape(t, joined)
product: float[6,8] = Gemm(rows, w, b)
turned: float[3,2,8] = Reshape(product, split)
y: float[2,3,8] = Transpose<perm=[1,0,2]>(turned)
output y
)";

// The text with weights in place of {...}, and with `from` replaced by `to`.
std::string LayerWith(std::string text, const std::string& from = "",
                      const std::string& to = "") {
  if (!from.empty()) {
    EXPECT_NE(text.find(from), std::string::npos) << from;
    text.replace(text.find(from), from.size(), to);
  }
  for (int count : {64, 8}) {
    std::string numbers;
    for (int i = 0; i < count; ++i) {
      numbers += (i > 0 ? "," : "") + std::to_string(i * i % 17 - 8);
    }
    size_t at = text.find("...");
    if (at != std::string::npos) text.replace(at, 3, numbers);
  }
  return text;
}

int CountIn(const std::string& text, const std::string& part) {
  int count = 0;
  for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) {
    ++count;
  }
  return count;
}

void ExpectNoTranspose(const std::string& text) {
  std::string after = AfterPass(KeepRowOrder, text);
  EXPECT_EQ(CountIn(after, "Transpose"), 0) << after;
  EXPECT_EQ(CountIn(after, "Gemm("), 1) << after;
  ExpectSameValues(KeepRowOrder, text, 0);
}

TEST(KeepRowOrder, BetweenTransposes) {
  ExpectNoTranspose(LayerWith(kTurnedLayer));
}

// Heads are put beside each other by further Transposes.
TEST(KeepRowOrder, BehindHeads) {
  ExpectNoTranspose(LayerWith(kTurnedLayer,
                              "t: float[3,2,8] = Transpose<perm=[1,0,2]>(x)",
                              R"(const heads: int64[4] = {2,3,2,4}
x4: float[2,3,2,4] = Reshape(x, heads)
x_heads: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(x4)
x_back: float[2,3,2,4] = Transpose<perm=[0,2,1,3]>(x_heads)
t: float[3,2,2,4] = Transpose<perm=[1,0,2,3]>(x_back))"));
}

TEST(KeepRowOrder, OneBatch) {
  std::string text = LayerWith(kTurnedLayer);
  for (auto [from, to] : {std::pair{"[2,3,8]", "[1,6,8]"},
                          {"[3,2,8]", "[6,1,8]"},
                          {"{3,2,8}", "{6,1,8}"}}) {
    for (size_t at; (at = text.find(from)) != std::string::npos;) {
      text.replace(at, std::string(from).size(), to);
    }
  }
  ExpectNoTranspose(text);
}

TEST(KeepRowOrder, StaysWhereOneTransposeIs) {
  ExpectStays(KeepRowOrder,
              LayerWith(kTurnedLayer,
                        "y: float[2,3,8] = Transpose<perm=[1,0,2]>(turned)",
                        "y: float[3,2,8] = Neg(turned)"));
  ExpectStays(
      KeepRowOrder,
      LayerWith(kTurnedLayer, "t: float[3,2,8] = Transpose<perm=[1,0,2]>(x)",
                "t: float[3,2,8] = Reshape(x, split)"));
}

// Transposes that move columns, too.
TEST(KeepRowOrder, StaysWhereColumnsMove) {
  ExpectStays(KeepRowOrder,
              LayerWith(kTurnedLayer,
                        "y: float[2,3,8] = Transpose<perm=[1,0,2]>(turned)",
                        "y: float[2,8,3] = Transpose<perm=[1,2,0]>(turned)"));
  ExpectStays(
      KeepRowOrder,
      LayerWith(kTurnedLayer, "t: float[3,2,8] = Transpose<perm=[1,0,2]>(x)",
                R"(const four: int64[4] = {2,3,4,2}
x4: float[2,3,4,2] = Reshape(x, four)
t: float[3,2,2,4] = Transpose<perm=[1,0,3,2]>(x4))"));
}

TEST(KeepRowOrder, StaysWhereTheTurnedRowsAreRead) {
  ExpectStays(KeepRowOrder, LayerWith(kTurnedLayer) + "output product\n");
}

TEST(KeepRowOrder, StaysWhereABiasHasRows) {
  ExpectStays(KeepRowOrder, LayerWith(kTurnedLayer, "const b: float[8] = {...}",
                                      "const b: float[6,1] = {0,1,2,3,4,5}"));
}

TEST(KeepRowOrder, StaysWhereRowsAreColumns) {
  ExpectStays(KeepRowOrder, R"(graph "g" opset 24
input x: float[2,4,8]
input w: float[8,8]
const joined: int64[2] = {8,8}
const split: int64[3] = {4,2,8}
t: float[4,2,8] = Transpose<perm=[1,0,2]>(x)
rows: float[8,8] = Reshape(t, joined)
product: float[8,8] = Gemm<transA=1>(rows, w)
turned: float[4,2,8] = Reshape(product, split)
y: float[2,4,8] = Transpose<perm=[1,0,2]>(turned)
output y
)");
}

// As torch.nn.MultiheadAttention is exported with batch_first.
TEST(KeepRowOrder, BeforePackedAttention) {
  const std::string text = R"(graph "g" opset 24
input x: float[2,3,4]
input w: float[12,4]
const joined: int64[2] = {6,4}
const five: int64[5] = {3,2,3,2,2}
const zero: int64[] = {0}
const one: int64[] = {1}
const two: int64[] = {2}
t: float[3,2,4] = Transpose<perm=[1,0,2]>(x)
rows: float[6,4] = Reshape(t, joined)
qkv: float[6,12] = Gemm<transB=1>(rows, w)
x5: float[3,2,3,2,2] = Reshape(qkv, five)
front: float[3,2,2,3,2] = Transpose<perm=[2,1,3,0,4]>(x5)
q: float[2,2,3,2] = Gather(front, zero)
k: float[2,2,3,2] = Gather(front, one)
v: float[2,2,3,2] = Gather(front, two)
kt: float[2,2,2,3] = Transpose<perm=[0,1,3,2]>(k)
qk: float[2,2,3,3] = MatMul(q, kt)
p: float[2,2,3,3] = Softmax<axis=-1>(qk)
y: float[2,2,3,2] = MatMul(p, v)
output y
)";
  auto fuse = [](Graph& graph) { FuseAttention(graph, true); };
  std::string after = AfterPass(fuse, text);
  EXPECT_NE(after.find("perm=[0,1,2], round_to"), std::string::npos) << after;
  EXPECT_EQ(CountIn(after, "Gemm<"), 1) << after;
  EXPECT_EQ(CountIn(after, "perm=[1,0,2]"), 0) << after;
  ExpectSameValues(fuse, text, 2e-6);
  // If another node reads the layer's result, the layer stays as it is. Its
  // rows have the time first, and the attention reads them so.
  after = AfterPass(fuse, text + "output qkv\n");
  EXPECT_NE(after.find("perm=[1,0,2], round_to"), std::string::npos) << after;
  EXPECT_EQ(CountIn(after, "Gemm<"), 1) << after;
}

}  // namespace
}  // namespace onnx_fp8
