// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_attention.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

void Fuse(Graph& graph) { FuseAttention(graph, false); }

std::string Fused(const std::string& text) { return AfterPass(Fuse, text); }

// Expects that the graph is fused, and computes the same up to rounding.
void ExpectFuses(const std::string& text) {
  EXPECT_NE(Fused(text).find("onnx_fp8.Attention"), std::string::npos) << text;
  ExpectSameValues(Fuse, text, 2e-6);
}

void ExpectStays(const std::string& text) { ExpectStays(Fuse, text); }

// Causal attention, as both exporters write it, with heads taken from (B,T,C).
const char kCausal[] = R"(graph "g" opset 24
input x: float[2,3,8]
const heads: int64[4] = {2,3,2,4}
const scale: float[] = {0.5}
const later: bool[3,3] = {0,1,1,0,0,1,0,0,0}
const lowest: float[] = {-inf}
const joined: int64[3] = {2,3,8}
split: float[2,3,2,4] = Reshape(x, heads)
q: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(split)
kt: float[2,2,4,3] = Transpose<perm=[0,2,3,1]>(split)
qk: float[2,2,3,3] = MatMul(q, kt)
scaled: float[2,2,3,3] = Mul(qk, scale)
masked: float[2,2,3,3] = Where(later, lowest, scaled)
p: float[2,2,3,3] = Softmax<axis=-1>(masked)
y4: float[2,2,3,4] = MatMul(p, q)
back: float[2,3,2,4] = Transpose<perm=[0,2,1,3]>(y4)
y: float[2,3,8] = Reshape(back, joined)
output y
)";

TEST(FuseAttention, ReadsHeadsWhereTheyLie) {
  EXPECT_EQ(Fused(kCausal), R"(graph "g" opset 24
input x: float[2,3,8]
const heads: int64[4] = {2,3,2,4}
const joined: int64[3] = {2,3,8}
const "const.int64[3] 2 3 8": int64[3] = {2,3,8}
const "const.int64[4] 2 3 2 4": int64[4] = {2,3,2,4}
split: float[2,3,2,4] = Reshape(x, heads)
y4.Reshape: float[2,3,8] = Reshape<allowzero=1>(split, "const.int64[3] 2 3 8")
y4.Reshape_1: float[2,3,8] = Reshape<allowzero=1>(split, "const.int64[3] 2 3 8")
y4.Reshape_2: float[2,3,8] = Reshape<allowzero=1>(split, "const.int64[3] 2 3 8")
y4.Attention: float[2,3,8], y4.Attention.1: float[2,2,3] = onnx_fp8.Attention<causal=1, heads=2, kv_heads=2, round_to=1, scale=0.5>(y4.Reshape, y4.Reshape_1, y4.Reshape_2)
y4.Reshape_3: float[2,3,2,4] = Reshape<allowzero=1>(y4.Attention, "const.int64[4] 2 3 2 4")
y4: float[2,2,3,4] = Transpose<perm=[0,2,1,3]>(y4.Reshape_3)
back: float[2,3,2,4] = Transpose<perm=[0,2,1,3]>(y4)
y: float[2,3,8] = Reshape(back, joined)
output y
)");
  ExpectFuses(kCausal);
}

// q, k and v of four heads; the lines in `scores` compute s from qk.
std::string Plain(const std::string& before, const std::string& scores) {
  return R"(input q: float[2,4,3,5]
input k: float[2,4,6,5]
input v: float[2,4,6,5]
)" + before +
         R"(kt: float[2,4,5,6] = Transpose<perm=[0,1,3,2]>(k)
qk: float[2,4,3,6] = MatMul(q, kt)
)" + scores +
         R"(p: float[2,4,3,6] = Softmax<axis=3>(s)
y: float[2,4,3,5] = MatMul(p, v)
output y
)";
}

TEST(FuseAttention, Masks) {
  ExpectFuses(
      Plain("const c: float[1] = {2}\n", "s: float[2,4,3,6] = Div(qk, c)\n"));
  ExpectFuses(Plain("const m: float[6] = {0,1,2,-3,0,-inf}\n",
                    "s: float[2,4,3,6] = Add(m, qk)\n"));
  // A mask that is true for seen scores, besides another one that is added.
  ExpectFuses(
      Plain("const m: bool[2,1,1,6] = {1,1,0,1,0,1,1,1,1,1,1,0}\n"
            "const low: float[] = {-1e30}\n"
            "const c: float[] = {0.25}\n"
            "const bias: float[6] = {1,2,3,1,2,3}\n",
            "t: float[2,4,3,6] = Mul(c, qk)\n"
            "u: float[2,4,3,6] = Add(t, bias)\n"
            "s: float[2,4,3,6] = Where(m, u, low)\n"));
}

// A mask of one value for all scores is no triangle, though it is square.
TEST(FuseAttention, AMaskOfOneElementIsNotCausal) {
  const char* masks[] = {
      "const m: float[1,1] = {0}\n|s: float[2,4,6,6] = Add(qk, m)\n",
      "const m: bool[1,1,1,1] = {0}\nconst low: float[] = {-inf}\n|"
      "s: float[2,4,6,6] = Where(m, low, qk)\n",
      "const m: bool[1,1] = {1}\nconst low: float[] = {-inf}\n|"
      "s: float[2,4,6,6] = Where(m, qk, low)\n",
  };
  for (std::string mask : masks) {
    size_t cut = mask.find('|');
    std::string text = R"(input q: float[2,4,6,5]
)" + mask.substr(0, cut) +
                       R"(kt: float[2,4,5,6] = Transpose<perm=[0,1,3,2]>(q)
qk: float[2,4,6,6] = MatMul(q, kt)
)" + mask.substr(cut + 1) +
                       R"(p: float[2,4,6,6] = Softmax<axis=3>(s)
y: float[2,4,6,5] = MatMul(p, q)
output y
)";
    ExpectFuses(text);
    EXPECT_NE(Fused(text).find("causal=0"), std::string::npos) << text;
  }
}

// Masks that nodes make: for long sequences they are not folded.
TEST(FuseAttention, CausalMasksByTheirNodes) {
  const std::string before = R"(const square: int64[2] = {6,6}
const one: bool[] = {1}
const low: float[] = {-inf}
const zero: float[] = {0}
const padding: bool[2,1,1,6] = {1,1,1,1,0,0,1,1,1,1,1,0}
)";
  auto attention =
      [&](const std::string& scores) {
        return R"(input q: float[2,4,6,5]
)" + before + R"(kt: float[2,4,5,6] = Transpose<perm=[0,1,3,2]>(q)
qk: float[2,4,6,6] = MatMul(q, kt)
)" + scores + R"(p: float[2,4,6,6] = Softmax<axis=3>(s)
y: float[2,4,6,5] = MatMul(p, q)
output y
)";
      };
  const std::string mask =
      "e: bool[6,6] = Expand(one, square)\n"
      "t: bool[6,6] = Trilu<upper=0>(e)\n";
  for (const std::string& scores :
       {mask + "w: float[6,6] = Where(t, zero, low)\n"
               "s: float[2,4,6,6] = Add(qk, w)\n",
        mask + "s: float[2,4,6,6] = Where(t, qk, low)\n",
        mask + "a: bool[2,1,6,6] = And(padding, t)\n"
               "s: float[2,4,6,6] = Where(a, qk, low)\n",
        mask + "n: bool[6,6] = Not(t)\n"
               "p0: bool[2,1,1,6] = Not(padding)\n"
               "o: bool[2,1,6,6] = Or(n, p0)\n"
               "s: float[2,4,6,6] = Where(o, low, qk)\n"}) {
    std::string text = attention(scores);
    ExpectFuses(text);
    std::string fused = Fused(text);
    EXPECT_NE(fused.find("causal=1"), std::string::npos) << fused;
    EXPECT_EQ(fused.find("[6,6]"), std::string::npos) << fused;
    bool padded = scores.find("padding") != std::string::npos;
    EXPECT_EQ(fused.find("AttentionBias") != std::string::npos, padded);
  }
  // Scores that the padding shows are seen above the diagonal too.
  std::string shown = attention(mask +
                                "o: bool[2,1,6,6] = Or(padding, t)\n"
                                "s: float[2,4,6,6] = Where(o, qk, low)\n");
  ExpectFuses(shown);
  EXPECT_NE(Fused(shown).find("causal=0"), std::string::npos);
}

// As PyTorch exports scaled_dot_product_attention with a mask.
TEST(FuseAttention, ASoftmaxWithoutNaN) {
  auto attention = [](const std::string& low, const std::string& zero) {
    return R"(input q: float[2,4,3,5]
input k: float[2,4,6,5]
const m: bool[2,1,1,6] = {1,1,0,1,0,1,1,1,1,1,1,0}
const zero: float[] = {)" +
           zero + R"(}
const low: float[] = {)" +
           low + R"(}
w: float[2,1,1,6] = Where(m, zero, low)
kt: float[2,4,5,6] = Transpose<perm=[0,1,3,2]>(k)
qk: float[2,4,3,6] = MatMul(q, kt)
s: float[2,4,3,6] = Add(qk, w)
p: float[2,4,3,6] = Softmax<axis=-1>(s)
none: bool[2,4,3,6] = IsNaN(p)
safe: float[2,4,3,6] = Where(none, zero, p)
y: float[2,4,3,5] = MatMul(safe, k)
output y
)";
  };
  ExpectFuses(attention("-3.4028235e38", "0"));
  // Rows may see nothing; and NaN may become another number.
  ExpectStays(attention("-inf", "0"));
  ExpectStays(attention("-3.4028235e38", "1"));
  std::string read = attention("-3.4028235e38", "0");
  ExpectStays(read + "output p\n");
}

// As T5 has it: a trained number for each distance of column and row.
TEST(FuseAttention, RelativeBias) {
  auto attention = [](const std::string& ids, const std::string& scores) {
    return R"(input q: float[2,4,3,5]
input k: float[2,4,4,5]
param table: float[6,4] = {1,2,3,4,0,-1,2,1,1,1,1,1,0,0,2,-2,3,1,0,1,2,2,2,2}
const ids: int64[3,4] = )" +
           ids + R"(
const zero: int64[1] = {0}
const mask: float[2,1,1,4] = {0,0,0,-inf,0,-1,0,0}
rows: float[3,4,4] = Gather<axis=0>(table, ids)
turned: float[4,3,4] = Transpose<perm=[2,0,1]>(rows)
bias: float[1,4,3,4] = Unsqueeze(turned, zero)
kt: float[2,4,5,4] = Transpose<perm=[0,1,3,2]>(k)
qk: float[2,4,3,4] = MatMul(q, kt)
)" + scores +
           R"(p: float[2,4,3,4] = Softmax<axis=-1>(s)
y: float[2,4,3,5] = MatMul(p, k)
output y
)";
  };
  const std::string even = "{2,3,5,0,1,2,3,5,4,1,2,3}";
  for (const char* scores : {"s: float[2,4,3,4] = Add(qk, bias)\n",
                             "t: float[2,4,3,4] = Add(qk, bias)\n"
                             "s: float[2,4,3,4] = Add(t, mask)\n",
                             "b: float[2,4,3,4] = Add(bias, mask)\n"
                             "s: float[2,4,3,4] = Add(b, qk)\n"}) {
    std::string text = attention(even, scores);
    ExpectFuses(text);
    EXPECT_NE(Fused(text).find("onnx_fp8.AttentionRelative"),
              std::string::npos);
    ExpectStays(attention("{2,3,5,0,1,2,3,5,4,1,2,0}", scores));
  }
}

TEST(FuseAttention, FactorsOfQAndK) {
  ExpectFuses(R"(input q: float[1,2,3,4]
input k: float[1,2,5,4]
const half: float[] = {0.5}
const flat: int64[3] = {2,5,4}
const split: int64[4] = {1,2,4,5}
k3: float[2,5,4] = Reshape(k, flat)
k3t: float[2,4,5] = Transpose<perm=[0,2,1]>(k3)
kt: float[1,2,4,5] = Reshape(k3t, split)
qs: float[1,2,3,4] = Mul(q, half)
ks: float[1,2,4,5] = Mul(kt, half)
s: float[1,2,3,5] = MatMul(qs, ks)
p: float[1,2,3,5] = Softmax<axis=-1>(s)
y: float[1,2,3,4] = MatMul(p, k)
output y
)");
}

// The Transpose between the Reshapes swaps no axes of k.
TEST(FuseAttention, ATransposeOfOtherRows) {
  std::string text = R"(input q: float[1,2,3,4]
input k: float[1,2,4,4]
const flat: int64[3] = {4,4,2}
const split: int64[4] = {1,2,4,4}
k3: float[4,4,2] = Reshape(k, flat)
k3t: float[4,2,4] = Transpose<perm=[0,2,1]>(k3)
kt: float[1,2,4,4] = Reshape(k3t, split)
s: float[1,2,3,4] = MatMul(q, kt)
p: float[1,2,3,4] = Softmax<axis=-1>(s)
y: float[1,2,3,4] = MatMul(p, k)
output y
)";
  ExpectFuses(text);
}

// A factor of more axes, behind which the scores have more.
TEST(FuseAttention, LeavesAFactorOfMoreAxes) {
  ExpectStays(R"(input q: float[2,3,4]
input k: float[2,4,3]
const c: float[1,1,1,1] = {0.5}
qk: float[2,3,3] = MatMul(q, k)
s: float[1,2,3,3] = Mul(qk, c)
p: float[1,2,3,3] = Softmax<axis=-1>(s)
v: float[1,2,3,3] = Relu(s)
y: float[1,2,3,3] = MatMul(p, v)
output y
)");
}

// Rows that the padding leaves without a score: numbers that hide scores decide
// what they read, above the diagonal too.
TEST(FuseAttention, CausalRowsThatSeeNothing) {
  auto attention = [](const std::string& scores) {
    return R"(input q: float[2,2,3,4]
const low: float[] = {-1e30}
const zero: float[] = {0}
const tril: bool[3,3] = {1,0,0,1,1,0,1,1,1}
const seen: bool[2,1,1,3] = {1,1,1,0,0,1}
const small: float[3] = {1,2,-3}
kt: float[2,2,4,3] = Transpose<perm=[0,1,3,2]>(q)
qk: float[2,2,3,3] = MatMul(q, kt)
)" + scores +
           R"(p: float[2,2,3,3] = Softmax<axis=-1>(s)
y: float[2,2,3,4] = MatMul(p, q)
output y
)";
  };
  const std::string and_seen = "a: bool[2,1,3,3] = And(tril, seen)\n",
                    pad = "m: float[2,1,1,3] = Where(seen, zero, low)\n",
                    triangle = "t: float[3,3] = Where(tril, zero, low)\n";
  for (const std::string& scores :
       {and_seen + "s: float[2,2,3,3] = Where(a, qk, low)\n",
        pad + triangle +
            "b: float[2,2,3,3] = Add(qk, t)\n"
            "s: float[2,2,3,3] = Add(b, m)\n"}) {
    std::string text = attention(scores);
    ExpectFuses(text);
    EXPECT_NE(Fused(text).find("causal=0"), std::string::npos) << text;
  }
  ExpectStays(attention(pad + "b: float[2,2,3,3] = Where(tril, qk, low)\n"
                              "s: float[2,2,3,3] = Add(b, m)\n"));
  // Numbers that hide nothing leave every row its diagonal.
  std::string text = attention(triangle +
                               "b: float[2,2,3,3] = Add(qk, t)\n"
                               "s: float[2,2,3,3] = Add(b, small)\n");
  ExpectFuses(text);
  EXPECT_NE(Fused(text).find("causal=1"), std::string::npos) << text;
}

TEST(FuseAttention, RepeatedHeadsAreNotRepeated) {
  std::string text = R"(input q: float[1,4,3,5]
input kv: float[1,2,6,5]
const axis: int64[1] = {2}
const five: int64[5] = {1,2,2,6,5}
const four: int64[4] = {1,4,6,5}
one: float[1,2,1,6,5] = Unsqueeze(kv, axis)
many: float[1,2,2,6,5] = Expand(one, five)
k: float[1,4,6,5] = Reshape(many, four)
kt: float[1,4,5,6] = Transpose<perm=[0,1,3,2]>(k)
s: float[1,4,3,6] = MatMul(q, kt)
p: float[1,4,3,6] = Softmax<axis=-1>(s)
y: float[1,4,3,5] = MatMul(p, k)
output y
)";
  ExpectFuses(text);
  EXPECT_NE(Fused(text).find("kv_heads=2"), std::string::npos);
  EXPECT_EQ(Fused(text).find("Expand"), std::string::npos);
}

// As torch.export writes it: a Slice of everything before the Expand.
TEST(FuseAttention, RepeatedHeadsBehindASliceOfEverything) {
  std::string text = R"(input q: float[1,4,3,5]
input kv: float[1,2,6,5]
const axis: int64[1] = {2}
const zero: int64[1] = {0}
const end: int64[1] = {9223372036854775807}
const last: int64[1] = {3}
const step: int64[1] = {1}
const five: int64[5] = {1,2,2,6,5}
const four: int64[4] = {1,4,6,5}
one: float[1,2,1,6,5] = Unsqueeze(kv, axis)
all: float[1,2,1,6,5] = Slice(one, zero, end, last, step)
many: float[1,2,2,6,5] = Expand(all, five)
k: float[1,4,6,5] = Reshape(many, four)
kt: float[1,4,5,6] = Transpose<perm=[0,1,3,2]>(k)
s: float[1,4,3,6] = MatMul(q, kt)
p: float[1,4,3,6] = Softmax<axis=-1>(s)
y: float[1,4,3,5] = MatMul(p, k)
output y
)";
  ExpectFuses(text);
  EXPECT_NE(Fused(text).find("kv_heads=2"), std::string::npos);
  EXPECT_EQ(Fused(text).find("Expand"), std::string::npos);
}

TEST(FuseAttention, LeavesWhatItDoesNotKnow) {
  // An op in between; scores that another node reads.
  ExpectStays(Plain("", "s: float[2,4,3,6] = Neg(qk)\n"));
  ExpectStays(
      Plain("const c: float[] = {2}\n", "s: float[2,4,3,6] = Mul(qk, c)\n") +
      "output s\n");
  // A bias that is trained, or fed: it needs a gradient.
  ExpectStays(
      Plain("param m: float[3,6]\n", "s: float[2,4,3,6] = Add(qk, m)\n"));
  ExpectStays(
      Plain("input m: float[3,6]\n", "s: float[2,4,3,6] = Add(qk, m)\n"));
  // A mask that is scaled with the scores; a mask that hides only a little.
  ExpectStays(
      Plain("const m: float[6] = {1,2,3,1,2,3}\n"
            "const c: float[] = {0.5}\n",
            "t: float[2,4,3,6] = Add(qk, m)\n"
            "s: float[2,4,3,6] = Mul(t, c)\n"));
  ExpectStays(
      Plain("const m: bool[6] = {1,1,0,1,0,1}\n"
            "const low: float[] = {-5}\n",
            "s: float[2,4,3,6] = Where(m, qk, low)\n"));
}

}  // namespace
}  // namespace onnx_fp8
