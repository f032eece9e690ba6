// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/mask_segments.h"

#include <gtest/gtest.h>

#include "graph/passes/fuse_attention.h"
#include "graph/print.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/graph/fusion.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

void MaskDocuments(Graph& graph) {
  MaskSegments(graph, "segments", *MakeCpuEvaluator());
}

void MaskAndFuse(Graph& graph) {
  MaskDocuments(graph);
  FuseAttention(graph, false);
}

void MaskAndPack(Graph& graph) {
  MaskDocuments(graph);
  FuseAttention(graph, true);
}

// Attention over six tokens of two samples, from `qk` to `s` by `scores`.
std::string OverSixTokens(const std::string& scores,
                          const std::string& before = "") {
  return R"(graph "g" opset 24
input q: float[2,2,6,4]
const segments: int32[2,6] = {0,0,0,1,1,2,3,4,4,4,4,4}
const zero: float[] = {0}
const low: float[] = {-inf}
const lowest: float[] = {-3.4028234663852886e38}
const t: bool[6,6] = {1,0,0,0,0,0,1,1,0,0,0,0,1,1,1,0,0,0,1,1,1,1,0,0,1,1,1,1,1,0,1,1,1,1,1,1}
const pads: float[2,1,1,6] = {0,0,0,0,-3.4028234663852886e38,0,0,0,0,0,0,0}
)" + before +
         R"(kt: float[2,2,4,6] = Transpose<perm=[0,1,3,2]>(q)
qk: float[2,2,6,6] = MatMul(q, kt)
)" + scores +
         R"(p: float[2,2,6,6] = Softmax<axis=-1>(s)
y: float[2,2,6,4] = MatMul(p, q)
output y
)";
}

TEST(MaskSegments, HidesOtherDocumentsFromEachSoftmax) {
  EXPECT_EQ(AfterPass(MaskDocuments, R"(graph "g" opset 24
input segments: int32[2,3]
input q: float[2,1,3,4]
kt: float[2,1,4,3] = Transpose<perm=[0,1,3,2]>(q)
qk: float[2,1,3,3] = MatMul(q, kt)
p: float[2,1,3,3] = Softmax<axis=3>(qk)
y: float[2,1,3,4] = MatMul(p, q)
output y
)"),
            R"(graph "g" opset 24
input segments: int32[2,3]
input q: float[2,1,3,4]
const "const.float -inf": float[] = {-inf}
const "const.int64[4] 2 1 3 1": int64[4] = {2,1,3,1}
const "const.int64[4] 2 1 1 3": int64[4] = {2,1,1,3}
segments.Reshape: int32[2,1,3,1] = Reshape<allowzero=1>(segments, "const.int64[4] 2 1 3 1")
segments.Reshape_1: int32[2,1,1,3] = Reshape<allowzero=1>(segments, "const.int64[4] 2 1 1 3")
segments.Equal: bool[2,1,3,3] = Equal(segments.Reshape, segments.Reshape_1)
kt: float[2,1,4,3] = Transpose<perm=[0,1,3,2]>(q)
qk: float[2,1,3,3] = MatMul(q, kt)
p.Where: float[2,1,3,3] = Where(segments.Equal, qk, "const.float -inf")
p: float[2,1,3,3] = Softmax<axis=3>(p.Where)
y: float[2,1,3,4] = MatMul(p, q)
output y
)");
}

TEST(MaskSegments, AttentionTakesTheMaskAsSegments) {
  for (const auto& [scores, op] :
       {std::pair{"s: float[2,2,6,6] = Mul(qk, half)\n", "causal=0"},
        std::pair{"m: float[2,2,6,6] = Mul(qk, half)\n"
                  "s: float[2,2,6,6] = Where(t, m, low)\n",
                  "causal=1"},
        std::pair{"w: float[6,6] = Where(t, zero, lowest)\n"
                  "s: float[2,2,6,6] = Add(qk, w)\n",
                  "causal=1"},
        std::pair{"m: float[2,2,6,6] = Add(qk, pads)\n"
                  "s: float[2,2,6,6] = Where(t, m, low)\n",
                  "causal=1"},
        std::pair{"w: float[6,6] = Where(t, zero, lowest)\n"
                  "m: float[2,2,6,6] = Add(qk, w)\n"
                  "s: float[2,2,6,6] = Add(m, pads)\n",
                  "causal=0"}}) {
    const std::string text =
        OverSixTokens(scores, "const half: float[] = {0.5}\n");
    const std::string fused = AfterPass(MaskAndFuse, text);
    EXPECT_NE(fused.find(std::string("onnx_fp8.AttentionSegments<") + op),
              std::string::npos)
        << fused;
    EXPECT_EQ(fused.find("Equal"), std::string::npos) << fused;
    EXPECT_LE(LargestDifference(ResultOf(MaskAndFuse, text),
                                ResultOf(MaskDocuments, text)),
              2e-6)
        << text;
  }
}

// Finite numbers over the mask would count in rows that see nothing else.
TEST(MaskSegments, AMaskUnderFiniteNumbersIsABias) {
  const std::string text = OverSixTokens(
      "rows: int32[2,1,6,1] = Unsqueeze(segments, a)\n"
      "columns: int32[2,1,1,6] = Unsqueeze(segments, c)\n"
      "same: bool[2,1,6,6] = Equal(rows, columns)\n"
      "m: float[2,2,6,6] = Where(same, qk, low)\n"
      "s: float[2,2,6,6] = Where(t, m, lowest)\n",
      "const a: int64[2] = {1,3}\nconst c: int64[2] = {1,2}\n");
  void (*fuse)(Graph&) = [](Graph& graph) { FuseAttention(graph, false); };
  const std::string fused = AfterPass(fuse, text);
  EXPECT_EQ(fused.find("AttentionSegments"), std::string::npos) << fused;
  ExpectSameValues(fuse, text, 2e-6);
  // As it stands alone it is known, too.
  std::string alone = text;
  const std::string last = "Where(t, m, lowest)";
  alone.replace(alone.find(last), last.size(), "Where(t, m, low)");
  EXPECT_NE(AfterPass(fuse, alone).find("AttentionSegments<causal=1"),
            std::string::npos);
  ExpectSameValues(fuse, alone, 2e-6);
}

TEST(MaskSegments, OfPartsOfOneValue) {
  const std::string text = R"(graph "g" opset 24
input x: float[2,6,12]
const segments: int32[2,6] = {0,0,0,1,1,2,3,4,4,4,4,4}
const heads: int64[4] = {2,6,2,2}
const joined: int64[3] = {2,6,4}
a: float[2,6,4], b: float[2,6,4], c: float[2,6,4] = Split<axis=2, num_outputs=3>(x)
a4: float[2,6,2,2] = Reshape(a, heads)
b4: float[2,6,2,2] = Reshape(b, heads)
c4: float[2,6,2,2] = Reshape(c, heads)
q: float[2,2,6,2] = Transpose<perm=[0,2,1,3]>(a4)
kt: float[2,2,2,6] = Transpose<perm=[0,2,3,1]>(b4)
v: float[2,2,6,2] = Transpose<perm=[0,2,1,3]>(c4)
s: float[2,2,6,6] = MatMul(q, kt)
p: float[2,2,6,6] = Softmax<axis=-1>(s)
y4: float[2,2,6,2] = MatMul(p, v)
back: float[2,6,2,2] = Transpose<perm=[0,2,1,3]>(y4)
y: float[2,6,4] = Reshape(back, joined)
output y
)";
  const std::string fused = AfterPass(MaskAndPack, text);
  EXPECT_NE(fused.find("onnx_fp8.AttentionPackedSegments<"), std::string::npos)
      << fused;
  EXPECT_LE(LargestDifference(ResultOf(MaskAndPack, text),
                              ResultOf(MaskDocuments, text)),
            2e-6);
}

// What is not fused keeps the mask, here because of the Dropout.
TEST(MaskSegments, StaysInFrontOfASoftmaxThatIsNotFused) {
  std::string text = OverSixTokens("s: float[2,2,6,6] = Identity(qk)\n");
  const std::string product = "MatMul(p, q)";
  text.replace(text.find("y: float[2,2,6,4]"), 17,
               "d: float[2,2,6,6] = Dropout(p)\ny: float[2,2,6,4]");
  text.replace(text.find(product), product.size(), "MatMul(d, q)");
  const std::string fused = AfterPass(MaskAndFuse, text);
  EXPECT_EQ(fused.find("onnx_fp8.Attention"), std::string::npos) << fused;
  EXPECT_NE(fused.find("Where(segments.Equal"), std::string::npos) << fused;
}

TEST(MaskSegments, ExpandsAttentionOfOnnx) {
  const std::string fused = AfterPass(MaskDocuments, R"(graph "g" opset 24
input segments: int32[2,3]
input q: float[2,1,3,4]
y: float[2,1,3,4] = Attention<is_causal=1>(q, q, q)
output y
)");
  EXPECT_NE(fused.find("Where(segments.Equal"), std::string::npos) << fused;
}

std::string ErrorOfMask(const std::string& text) {
  return ErrorOf([&] { AfterPass(MaskDocuments, text); });
}

TEST(MaskSegments, RefusesWhatMixesDocumentsOtherwise) {
  const std::string head = R"(graph "g" opset 24
input segments: int32[2,3]
input x: float[2,3,4]
)";
  EXPECT_NE(ErrorOfMask(head + "y: float[2,3,4] = Relu(x)\noutput y\n")
                .find("expected attention, which `segment_ids` keeps"),
            std::string::npos);
  EXPECT_NE(
      ErrorOfMask(head +
                  R"(const w: float[1,4,4] = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}
t: float[3,2,4] = Transpose<perm=[1,0,2]>(x)
y: float[3,1,2,4] = RNN<hidden_size=4>(t, w, w)
output y
)")
          .find("RNN mixes the tokens of a row"),
      std::string::npos);
  EXPECT_NE(ErrorOfMask(
                head +
                R"(const w: float[3,3,2] = {1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0,1,0}
y: float[2,3,3] = Conv(x, w)
output y
)")
                .find("Conv mixes the tokens of a row"),
            std::string::npos);
  // Attention to rows of something else.
  EXPECT_NE(ErrorOfMask(head + R"(input k: float[2,4,5]
s: float[2,3,5] = MatMul(x, k)
p: float[2,3,5] = Softmax<axis=-1>(s)
kt: float[2,5,4] = Transpose<perm=[0,2,1]>(k)
y: float[2,3,4] = MatMul(p, kt)
output y
)")
                .find("expected scores of 2 samples and 3 × 3 tokens, as "
                      "segments has segments for, got [2,3,5]"),
            std::string::npos);
}

// Attention of a row to itself, from the scores `s` (2,3,3) of `x` to `y`.
std::string OverThreeTokens(const std::string& after_scores) {
  return R"(graph "g" opset 24
input segments: int32[2,3]
input x: float[2,3,4]
xt: float[2,4,3] = Transpose<perm=[0,2,1]>(x)
s: float[2,3,3] = MatMul(x, xt)
)" + after_scores +
         "output y\n";
}

TEST(MaskSegments, FindsProbabilitiesBehindTheValues) {
  const std::string masked = AfterPass(MaskDocuments, OverThreeTokens(R"(
p: float[2,3,3] = Softmax<axis=-1>(s)
pt: float[2,3,3] = Transpose<perm=[0,2,1]>(p)
y: float[2,4,3] = MatMul(xt, pt)
)"));
  EXPECT_NE(masked.find("Where(segments.Equal"), std::string::npos) << masked;
}

// Each of these would let documents see each other beside attention that has
// the mask.
TEST(MaskSegments, RefusesAttentionInFormsThatItCannotMask) {
  const std::string expected =
      "expected scores of 2 samples and 3 × 3 tokens, as segments has segments "
      "for, got ";
  for (const auto& [graph, got] :
       {std::pair{// the samples' rows along one axis
                  "const flat: int64[2] = {6,3}\n"
                  "const back: int64[3] = {2,3,3}\n"
                  "rows: float[6,3] = Reshape(s, flat)\n"
                  "p_rows: float[6,3] = Softmax<axis=-1>(rows)\n"
                  "p: float[2,3,3] = Reshape(p_rows, back)\n"
                  "y: float[2,3,4] = MatMul(p, x)\n",
                  "[6,3]"},
        std::pair{// keys before queries
                  "pt: float[2,3,3] = Softmax<axis=1>(s)\n"
                  "p: float[2,3,3] = Transpose<perm=[0,2,1]>(pt)\n"
                  "y: float[2,3,4] = MatMul(p, x)\n",
                  "[2,3,3] and the axis 1"},
        std::pair{// a further column takes a part of the probability
                  "const sinks: float[2,3,1] = {1,2,3,4,5,6}\n"
                  "const zero: int64[1] = {0}\n"
                  "const three: int64[1] = {3}\n"
                  "const two: int64[1] = {2}\n"
                  "more: float[2,3,4] = Concat<axis=2>(s, sinks)\n"
                  "p_more: float[2,3,4] = Softmax<axis=-1>(more)\n"
                  "p: float[2,3,3] = Slice(p_more, zero, three, two)\n"
                  "y: float[2,3,4] = MatMul(p, x)\n",
                  "[2,3,4]"}}) {
    const std::string error = ErrorOfMask(OverThreeTokens(graph));
    EXPECT_NE(error.find(expected + got), std::string::npos) << error;
  }
}

// A decoder's attention to as many tokens of an encoder.
TEST(MaskSegments, RefusesAttentionToAnotherSequence) {
  const std::string error = ErrorOfMask(R"(graph "g" opset 24
input segments: int32[2,3]
input x: float[2,3,4]
input memory: float[2,3,4]
kt: float[2,4,3] = Transpose<perm=[0,2,1]>(memory)
s: float[2,3,3] = MatMul(x, kt)
p: float[2,3,3] = Softmax<axis=-1>(s)
y: float[2,3,4] = MatMul(p, memory)
output y
)");
  EXPECT_NE(error.find("expected attention of a sequence to itself, as "
                       "segments tells the documents of one sequence apart, "
                       "got x and memory"),
            std::string::npos)
      << error;
}

// Rows and columns of a convolution along two axes are tokens and their
// elements.
TEST(MaskSegments, RefusesAWindowOfTokensAlongTwoAxes) {
  const std::string error = ErrorOfMask(R"(graph "g" opset 24
input segments: int32[2,3]
input x: float[2,1,3,4]
const w: float[1,1,2,4] = {1,0,1,0,1,0,1,0}
y: float[2,1,2,1] = Conv(x, w)
output y
)");
  EXPECT_NE(error.find("Conv mixes the tokens of a row"), std::string::npos)
      << error;
}

// A graph with attention of `x`, whose result is `a`, and with `nodes`, which
// read `x` or `a` and make the output `y`.
std::string BesideAttention(const std::string& nodes) {
  return OverThreeTokens(R"(const zero: int64[1] = {0}
const one: int64[1] = {1}
const two: int64[1] = {2}
const three: int64[1] = {3}
const last: int64[1] = {-1}
const flat: int64[2] = {6,4}
const rows: int64[3] = {2,3,4}
const first: float[2,1,4] = {0,0,0,0,0,0,0,0}
const w: float[4,4] = {1,0,0,0,0,1,0,0,0,0,1,0,0,0,0,1}
const over_rows: float[3,3] = {1,0,0,1,1,0,1,1,1}
p: float[2,3,3] = Softmax<axis=-1>(s)
a: float[2,3,4] = MatMul(p, x)
)" + nodes);
}

// Shifts and sums of tokens, which no mask keeps to a document.
TEST(MaskSegments, RefusesNodesThatMixTokensBesideAttention) {
  const std::string before =
      "before: float[2,2,4] = Slice(a, zero, last, one)\n";
  for (const auto& [nodes, error] :
       {std::pair{// the token before
                  before + "y: float[2,3,4] = Concat<axis=1>(first, before)\n",
                  "Concat puts tokens of a row at the places of others"},
        std::pair{before + "const pads: int64[6] = {0,1,0,0,0,0}\n"
                           "y: float[2,3,4] = Pad(before, pads)\n",
                  "Pad puts tokens of a row at the places of others"},
        std::pair{// the window of a causal convolution
                  std::string("const pads: int64[6] = {0,2,0,0,0,0}\n"
                              "padded: float[2,5,4] = Pad(x, pads)\n"
                              "y: float[2,3,4] = Slice(padded, one, last, "
                              "one)\n"),
                  "Slice puts tokens of a row at the places of others"},
        std::pair{// the last token comes first
                  before + "end: float[2,1,4] = Slice(a, last, three, one)\n"
                           "y: float[2,3,4] = Concat<axis=1>(end, before)\n",
                  "Concat puts tokens of a row at the places of others"},
        std::pair{// from each token to the next
                  before + "after: float[2,2,4] = Slice(a, one, three, one)\n"
                           "y: float[2,2,4] = Sub(after, before)\n",
                  "Sub mixes the tokens of a row"},
        std::pair{before + "after: float[2,2,4] = Slice(a, one, three, one)\n"
                           "y: float[2,2,8] = Concat<axis=2>(after, before)\n",
                  "Concat mixes the tokens of a row"},
        std::pair{// behind a layer over all rows of the batch
                  std::string("f: float[6,4] = Reshape(a, flat)\n"
                              "g: float[6,4] = Gemm(f, w)\n"
                              "h: float[2,3,4] = Reshape(g, rows)\n"
                              "const axis: int64[] = {1}\n"
                              "y: float[2,3,4] = CumSum(h, axis)\n"),
                  "CumSum mixes the tokens of a row"},
        std::pair{// a layer across the tokens
                  std::string("y: float[2,3,4] = MatMul(over_rows, a)\n"),
                  "MatMul mixes the tokens of a row"},
        std::pair{std::string("at: float[2,4,3] = Transpose<perm=[0,2,1]>(a)\n"
                              "y: float[2,4,3] = MatMul(at, over_rows)\n"),
                  "MatMul mixes the tokens of a row"},
        std::pair{std::string("y: float[2,3,4] = Softmax<axis=1>(a)\n"),
                  "Softmax mixes the tokens of a row"},
        std::pair{std::string("y: float[2,3,4] = RMSNormalization<axis=1>(a, "
                              "rowed)\n"),
                  "RMSNormalization mixes the tokens of a row"},
        std::pair{std::string("at: float[2,4,3] = Transpose<perm=[0,2,1]>(a)\n"
                              "y: float[2,4,2] = MaxPool<kernel_shape=[2]>"
                              "(at)\n"),
                  "MaxPool mixes the tokens of a row"}}) {
    const std::string text = BesideAttention(
        "const rowed: float[3,4] = {1,1,1,1,1,1,1,1,1,1,1,1}\n" + nodes);
    const std::string got = ErrorOfMask(text);
    EXPECT_NE(got.find(error), std::string::npos) << nodes << got;
  }
}

// A sum over a row tells each of its tokens of the others.
TEST(MaskSegments, RefusesTokensThatMeetASumOverTheirRow) {
  for (const auto& [nodes, error] :
       {std::pair{std::string("most: float[2,1,4] = ReduceMax<keepdims=1>"
                              "(a, one)\n"
                              "y: float[2,3,4] = Sub(a, most)\n"),
                  "Sub mixes the tokens of a row"},
        std::pair{// squeeze and excitation
                  std::string("mean: float[2,4] = ReduceMean<keepdims=0>"
                              "(a, one)\n"
                              "layer: float[2,4] = Gemm(mean, w)\n"
                              "gate: float[2,4] = Sigmoid(layer)\n"
                              "gates: float[2,1,4] = Unsqueeze(gate, one)\n"
                              "y: float[2,3,4] = Mul(gates, a)\n"),
                  "Mul mixes the tokens of a row"},
        std::pair{// the mean beside each token
                  std::string("mean: float[2,1,4] = ReduceMean<keepdims=1>"
                              "(a, one)\n"
                              "const sizes: int64[3] = {2,3,4}\n"
                              "means: float[2,3,4] = Expand(mean, sizes)\n"
                              "y: float[2,3,8] = Concat<axis=2>(a, means)\n"),
                  "Concat mixes the tokens of a row"},
        std::pair{// linear attention
                  std::string("at: float[2,4,3] = Transpose<perm=[0,2,1]>(a)\n"
                              "kv: float[2,4,4] = MatMul(at, a)\n"
                              "y: float[2,3,4] = MatMul(a, kv)\n"),
                  "MatMul mixes the tokens of a row"},
        std::pair{// behind a sum over the elements of a token
                  std::string("e: float[2,3] = ReduceSum<keepdims=0>(a, two)\n"
                              "const axis: int64[] = {1}\n"
                              "y: float[2,3] = CumSum(e, axis)\n"),
                  "CumSum mixes the tokens of a row"}}) {
    const std::string got = ErrorOfMask(BesideAttention(nodes));
    EXPECT_NE(got.find(error), std::string::npos) << nodes << got;
  }
}

// Shifted tokens of an embedding, whose ids are the input.
TEST(MaskSegments, FollowsTokensFromEmbeddings) {
  const std::string text = R"(graph "g" opset 24
input segments: int32[2,3]
input ids: int64[2,3]
const table: float[5,4]
const zero: int64[1] = {0}
const last: int64[1] = {-1}
const one: int64[1] = {1}
const first: float[2,1,4] = {0,0,0,0,0,0,0,0}
x: float[2,3,4] = Gather(table, ids)
xt: float[2,4,3] = Transpose<perm=[0,2,1]>(x)
s: float[2,3,3] = MatMul(x, xt)
p: float[2,3,3] = Softmax<axis=-1>(s)
a: float[2,3,4] = MatMul(p, x)
b: float[2,2,4] = Slice(a, zero, last, one)
y: float[2,3,4] = Concat<axis=1>(first, b)
output y
)";
  EXPECT_NE(ErrorOfMask(text).find("Concat puts tokens of a row"),
            std::string::npos);
}

TEST(MaskSegments, TakesNodesThatLeaveTokensInTheirPlaces) {
  for (const char* nodes :
       {// rows without the last token, as a loss of the next one reads them
        "y: float[2,2,4] = Slice(a, zero, last, one)\n",
        // the two halves of each token change places
        "l: float[2,3,2], r: float[2,3,2] = Split<axis=2, num_outputs=2>(a)\n"
        "y: float[2,3,4] = Concat<axis=2>(r, l)\n",
        // parts of the row, put together again
        "l: float[2,1,4] = Slice(a, zero, one, one)\n"
        "r: float[2,2,4] = Slice(a, one, three, one)\n"
        "y: float[2,3,4] = Concat<axis=1>(l, r)\n",
        // The model puts a token before the row and removes it later.
        "more: float[2,4,4] = Concat<axis=1>(first, a)\n"
        "const four: int64[1] = {4}\n"
        "y: float[2,3,4] = Slice(more, one, four, one)\n",
        // along the elements of a token
        "const axis: int64[] = {2}\n"
        "c: float[2,3,4] = CumSum(a, axis)\n"
        "d: float[2,3,4] = Softmax<axis=2>(c)\n"
        "y: float[2,3,4] = MatMul(d, w)\n",
        // the mean of a row, for a loss
        "m: float[2,1,4] = ReduceMean<keepdims=1>(a, one)\n"
        "y: float[2,1,4] = MatMul(m, w)\n",
        // the mean of each token, as a norm takes it
        "m: float[2,3,1] = ReduceMean<keepdims=1>(a, two)\n"
        "y: float[2,3,4] = Sub(a, m)\n",
        // the largest element of a tensor, for a scale of codes
        "m: float[] = ReduceMax<keepdims=0>(a)\n"
        "y: float[2,3,4] = Div(a, m)\n"}) {
    EXPECT_EQ(ErrorOfMask(BesideAttention(nodes)), "") << nodes;
  }
}

TEST(AddSegmentInput, TakesTheAxesOfTokensBeforeOthers) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input mask: float[2,1,3,3]
input ids: int64[2,3]
y: int64[2,3] = Identity(ids)
output y
)");
  EXPECT_TRUE(AddSegmentInput(*graph, "segments"));
  EXPECT_EQ(graph->Find("segments")->shape, (Shape{2, 3}));
}

TEST(AddSegmentInput, TakesTheAxesOfTheFirstInput) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input flag: int64[]
input ids: int64[2,3]
y: int64[2,3] = Identity(ids)
output y
)");
  EXPECT_TRUE(AddSegmentInput(*graph, "segments"));
  const Value* added = graph->Find("segments");
  EXPECT_EQ(added->dtype, DType::kInt32);
  EXPECT_EQ(added->shape, (Shape{2, 3}));
  EXPECT_FALSE(AddSegmentInput(*graph, "ids"));
  EXPECT_NE(ErrorOf([&] {
              AddSegmentInput(*graph, "flag");
            }).find("expected an input of integers with the axes of batch"),
            std::string::npos);
  EXPECT_NE(ErrorOf([&] {
              AddSegmentInput(*graph, "y");
            }).find("expected the name of an input"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
