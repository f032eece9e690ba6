// SPDX-License-Identifier: Apache-2.0
//
// Which attention reads q, k and v from one operand.
#include <gtest/gtest.h>

#include "graph/passes/fuse_attention.h"
#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

void FuseAndPack(Graph& graph) { FuseAttention(graph, true); }

// Attention of 2 batches, 3 rows, 2 heads of 4 elements, and what `before` does
// to get q, k and v (2,2,3,4) from `x`.
std::string TextWith(const std::string& x, const std::string& before) {
  return "graph \"g\" opset 24\ninput x: float" + x + "\n" + before +
         R"(kt: float[2,2,4,3] = Transpose<perm=[0,1,3,2]>(k)
qk: float[2,2,3,3] = MatMul(q, kt)
p: float[2,2,3,3] = Softmax<axis=-1>(qk)
y: float[2,2,3,4] = MatMul(p, v)
output y
)";
}

// Expects AttentionPacked of x, with `perm`, and the same values.
void ExpectPacks(const std::string& text, const std::string& perm) {
  std::string fused = AfterPass(FuseAndPack, text);
  EXPECT_NE(fused.find("onnx_fp8.AttentionPacked<"), std::string::npos)
      << fused;
  EXPECT_NE(fused.find("perm=" + perm + ", round_to"), std::string::npos)
      << fused;
  EXPECT_EQ(fused.find("Split"), std::string::npos) << fused;
  ExpectSameValues(FuseAndPack, text, 2e-6);
}

void ExpectSeparate(const std::string& text) {
  std::string fused = AfterPass(FuseAndPack, text);
  EXPECT_NE(fused.find("onnx_fp8.Attention<"), std::string::npos) << fused;
  ExpectSameValues(FuseAndPack, text, 2e-6);
}

// A graph of operand x. The line `split` takes the parts a, b and c from it.
// The lines `heads` read the heads of these parts: a4, b4 and c4.
std::string PartsOf(const std::string& x, const std::string& split,
                    const std::string& heads) {
  return TextWith(x, "const heads: int64[4] = {2,3,2,4}\n" + split + R"(
a4: float[2,3,2,4] = Reshape(a, heads)
b4: float[2,3,2,4] = Reshape(b, heads)
c4: float[2,3,2,4] = Reshape(c, heads)
)" + heads);
}

// As GPT-2 has it: (B,T,3·C), split into three.
std::string Split(const std::string& heads) {
  return PartsOf("[2,3,24]",
                 "a: float[2,3,8], b: float[2,3,8], c: float[2,3,8] = "
                 "Split<axis=2, num_outputs=3>(x)",
                 heads);
}

const char kTurned[] = R"(q: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(a4)
k: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(b4)
v: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(c4)
)";

TEST(PackAttention, ASplit) {
  EXPECT_EQ(AfterPass(FuseAndPack, Split(kTurned)), R"(graph "g" opset 24
input x: float[2,3,24]
const "const.int64[4] 2 3 2 4": int64[4] = {2,3,2,4}
y.AttentionPacked: float[2,3,8], y.AttentionPacked.1: float[2,2,3] = onnx_fp8.AttentionPacked<causal=0, heads=2, kv_heads=2, perm=[0,1,2], round_to=1, scale=1.0>(x)
y.Reshape: float[2,3,2,4] = Reshape<allowzero=1>(y.AttentionPacked, "const.int64[4] 2 3 2 4")
y: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(y.Reshape)
output y
)");
  ExpectPacks(Split(kTurned), "[0,1,2]");
}

TEST(PackAttention, OnlyWhereTheCallerAllowsIt) {
  auto fuse = [](Graph& graph) { FuseAttention(graph, false); };
  std::string fused = AfterPass(fuse, Split(kTurned));
  EXPECT_NE(fused.find("onnx_fp8.Attention<"), std::string::npos) << fused;
}

// Each of q, k and v has a factor.
TEST(PackAttention, ScaledParts) {
  ExpectPacks(Split(R"(const s: float[] = {0.5}
q0: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(a4)
k0: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(b4)
q: float[2,2,3,4] = Mul(q0, s)
k: float[2,2,3,4] = Mul(k0, s)
v: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(c4)
)"),
              "[0,1,2]");
}

TEST(PackAttention, PartsInAnotherOrder) {
  ExpectSeparate(Split(R"(q: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(b4)
k: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(a4)
v: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(c4)
)"));
  ExpectSeparate(Split(R"(q: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(a4)
k: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(b4)
v: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(b4)
)"));
}

// As timm has it: (B,T,3,H,D), with the three in front.
TEST(PackAttention, PartsInFront) {
  const std::string front = R"(const five: int64[5] = {2,3,3,2,4}
const zero: int64[] = {0}
const one: int64[] = {1}
const minus: int64[] = {-1}
x5: float[2,3,3,2,4] = Reshape(x, five)
front: float[3,2,2,3,4] = Transpose<perm=[2,0,3,1,4]>(x5)
)";
  ExpectPacks(TextWith("[2,3,24]", front + R"(
q: float[2,2,3,4] = Gather(front, zero)
k: float[2,2,3,4] = Gather(front, one)
v: float[2,2,3,4] = Gather(front, minus)
)"),
              "[0,1,2]");
  ExpectPacks(TextWith("[6,24]", front + R"(
const axis: int64[1] = {0}
q1: float[1,2,2,3,4], k1: float[1,2,2,3,4], v1: float[1,2,2,3,4] = Split<num_outputs=3>(front)
q: float[2,2,3,4] = Squeeze(q1, axis)
k: float[2,2,3,4] = Squeeze(k1, axis)
v: float[2,2,3,4] = Squeeze(v1)
)"),
              "[0,1,2]");
  ExpectPacks(TextWith("[2,72]", front + R"(
const axis: int64[1] = {0}
const i0: int64[1] = {0}
const i1: int64[1] = {1}
const i2: int64[1] = {2}
const end: int64[1] = {9223372036854775807}
q1: float[1,2,2,3,4] = Slice(front, i0, i1, i0)
k1: float[1,2,2,3,4] = Slice(front, i1, i2)
v1: float[1,2,2,3,4] = Slice(front, i2, end, i0, i1)
q: float[2,2,3,4] = Squeeze(q1, axis)
k: float[2,2,3,4] = Squeeze(k1, axis)
v: float[2,2,3,4] = Squeeze(v1, axis)
)"),
              "[0,1,2]");
}

// As torch.nn.MultiheadAttention has it: (T,B,3·C), with batches and heads in
// one axis.
TEST(PackAttention, TheTimeFirst) {
  const std::string text =
      TextWith("[3,2,24]", R"(const four: int64[4] = {3,2,3,8}
const axis: int64[1] = {0}
const unit: int64[1] = {-2}
const zero: int64[] = {0}
const one: int64[] = {1}
const two: int64[] = {2}
const joined: int64[3] = {3,4,4}
const heads: int64[4] = {2,2,3,4}
x4: float[3,2,3,8] = Reshape(x, four)
x5: float[1,3,2,3,8] = Unsqueeze(x4, axis)
front5: float[3,3,2,1,8] = Transpose<perm=[3,1,2,0,4]>(x5)
front: float[3,3,2,8] = Squeeze(front5, unit)
q0: float[3,2,8] = Gather<axis=0>(front, zero)
k0: float[3,2,8] = Gather<axis=0>(front, one)
v0: float[3,2,8] = Gather<axis=0>(front, two)
q1: float[3,4,4] = Reshape(q0, joined)
k1: float[3,4,4] = Reshape(k0, joined)
v1: float[3,4,4] = Reshape(v0, joined)
q2: float[4,3,4] = Transpose<perm=[1,0,2]>(q1)
k2: float[4,3,4] = Transpose<perm=[1,0,2]>(k1)
v2: float[4,3,4] = Transpose<perm=[1,0,2]>(v1)
q: float[2,2,3,4] = Reshape(q2, heads)
k: float[2,2,3,4] = Reshape(k2, heads)
v: float[2,2,3,4] = Reshape(v2, heads)
)");
  ExpectPacks(text, "[1,0,2]");
}

// x holds more than q, k and v: a gradient of it would have a gap.
TEST(PackAttention, AWiderOperand) {
  ExpectSeparate(PartsOf("[2,3,32]",
                         "a: float[2,3,8], b: float[2,3,8], c: float[2,3,8], "
                         "rest: float[2,3,8] = Split<axis=2, num_outputs=4>(x)",
                         kTurned));
}

// The first two of four batches.
TEST(PackAttention, AnOperandOfMoreBatches) {
  ExpectSeparate(PartsOf("[4,3,24]", R"(const from: int64[1] = {0}
const to: int64[1] = {2}
some: float[2,3,24] = Slice(x, from, to)
a: float[2,3,8], b: float[2,3,8], c: float[2,3,8] = Split<axis=2, num_outputs=3>(some))",
                         kTurned));
}

// Each part has the batches below each other: (3·B,T,C).
TEST(PackAttention, PartsOfBatches) {
  ExpectSeparate(PartsOf("[6,3,8]",
                         "a: float[2,3,8], b: float[2,3,8], c: float[2,3,8] = "
                         "Split<axis=0, num_outputs=3>(x)",
                         kTurned));
}

// Two heads of q share a head of k and v.
TEST(PackAttention, Groups) {
  const std::string text = R"(graph "g" opset 24
input x: float[2,3,16]
const widths: int64[3] = {8,4,4}
const two: int64[4] = {2,3,2,4}
const one: int64[4] = {2,3,1,4}
const all: int64[5] = {2,1,2,3,4}
const heads: int64[4] = {2,2,3,4}
const axis: int64[1] = {2}
a: float[2,3,8], b: float[2,3,4], c: float[2,3,4] = Split<axis=2>(x, widths)
a4: float[2,3,2,4] = Reshape(a, two)
b4: float[2,3,1,4] = Reshape(b, one)
c4: float[2,3,1,4] = Reshape(c, one)
q: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(a4)
b5: float[2,1,3,4] = Transpose<perm=[0,2,1,3]>(b4)
c5: float[2,1,3,4] = Transpose<perm=[0,2,1,3]>(c4)
b6: float[2,1,1,3,4] = Unsqueeze(b5, axis)
c6: float[2,1,1,3,4] = Unsqueeze(c5, axis)
b7: float[2,1,2,3,4] = Expand(b6, all)
c7: float[2,1,2,3,4] = Expand(c6, all)
k: float[2,2,3,4] = Reshape(b7, heads)
v: float[2,2,3,4] = Reshape(c7, heads)
kt: float[2,2,4,3] = Transpose<perm=[0,1,3,2]>(k)
qk: float[2,2,3,3] = MatMul(q, kt)
p: float[2,2,3,3] = Softmax<axis=-1>(qk)
y: float[2,2,3,4] = MatMul(p, v)
output y
)";
  ExpectPacks(text, "[0,1,2]");
}

TEST(PackAttention, ABias) {
  std::string text = Split(kTurned);
  const std::string softmax = "Softmax<axis=-1>(qk)";
  text.replace(text.find(softmax), softmax.size(), "Softmax<axis=-1>(s)");
  const std::string p = "p: float";
  text.insert(
      text.find(p),
      "const m: float[3] = {0,-inf,1}\ns: float[2,2,3,3] = Add(qk, m)\n");
  std::string fused = AfterPass(FuseAndPack, text);
  EXPECT_NE(fused.find("AttentionPackedBias<"), std::string::npos) << fused;
  ExpectSameValues(FuseAndPack, text, 2e-6);
}

}  // namespace
}  // namespace onnx_fp8
