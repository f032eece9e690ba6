// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/chunk_loss.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kLogits = 700 * 24 * 4;  // bytes

void Chunk(Graph& graph) { ChunkLoss(graph, kLogits * 2 / 5); }

// 700 rows, cut into 256, 256 and 188.
std::string Labels(int from, int to) {
  std::string text = "const labels: int64[700] = {";
  for (int i = 0; i < 700; ++i) {
    text += i == 0 ? "" : ",";
    text += i >= from && i < to ? "-100" : std::to_string(i * 7 % 24);
  }
  return text + "}\n";
}

const char kHead[] = R"(graph "g" opset 24
input x: float[700,5]
input w: float[24,5]
input bias: float[24]
const seed: float[] = {0.25}
const first: int64[1] = {0}
const whole: int64[3] = {7,100,24}
)";

const char kForward[] = R"(
product: float[700,24] = Gemm<transB=1>(x, w)
biased: float[700,24] = Add(product, bias)
logits: float[7,100,24] = Reshape(biased, whole)
scores: float[700,24] = Flatten<axis=-1>(logits)
loss: float[], lse: float[700] = onnx_fp8.CrossEntropy<ignore_index=-100>(scores, labels)
)";

const char kBackward[] = R"(
dscores: float[700,24] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>(seed, scores, lse, labels)
dx: float[700,5] = MatMul(dscores, w)
dw: float[24,5] = Gemm<transA=1>(dscores, x)
dbias: float[24] = ReduceSum<keepdims=0>(dscores, first)
)";

std::string StepText(const std::string& output, int from = 256, int to = 512) {
  return kHead + Labels(from, to) + kForward + kBackward + "output " + output +
         "\n";
}

TEST(ChunkLoss, TheResultsAreTheSame) {
  for (const char* output : {"loss", "dx", "dw", "dbias"}) {
    for (int from : {0, 3, 256}) {
      SCOPED_TRACE(std::string(output) + ", " + std::to_string(from));
      std::string text = StepText(output, from, 512);
      ExpectSameValues(Chunk, text, 2e-6);
      std::string after = AfterPass(Chunk, text);
      EXPECT_EQ(after.find("float[700,24]"), std::string::npos) << after;
      EXPECT_NE(after.find("float[188,24]"), std::string::npos) << after;
      EXPECT_NE(after.find(std::string("output ") + output), std::string::npos);
    }
  }
}

// A node that the chunks do not need, such as the gather of a weight of an
// earlier layer, would hold its result while all chunks run.
TEST(ChunkLoss, NodesBehindTheLossStayBehindTheChunks) {
  const std::string text = kHead + Labels(0, 5) + kForward + R"(
needed: float[24,5] = Neg(w)
dscores: float[700,24] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>(seed, scores, lse, labels)
dx: float[700,5] = MatMul(dscores, needed)
other: float[24,5] = Exp(w)
dw: float[24,5] = Gemm<transA=1>(dscores, x)
y: float[700,24] = Gemm<transB=1>(dx, other)
output dw
output loss
output y
)";
  auto graph = ParseGraph(text);
  Chunk(*graph);
  std::vector<std::string> order;  // of some ops
  for (const Node& node : graph->nodes()) {
    if (node.op == "CrossEntropy" || node.op == "Neg" || node.op == "Exp") {
      order.push_back(node.op);
    }
  }
  EXPECT_EQ(order,
            (std::vector<std::string>{"Neg", "CrossEntropy", "CrossEntropy",
                                      "CrossEntropy", "Exp"}));
  ExpectSameValues(Chunk, text, 2e-6);
}

// x from the left, as a layer has it whose weight is stored transposed.
TEST(ChunkLoss, AWeightThatIsStoredTransposed) {
  std::string text = StepText("dw");
  auto replace = [&](const std::string& from, const std::string& to) {
    ASSERT_NE(text.find(from), std::string::npos);
    text.replace(text.find(from), from.size(), to);
  };
  replace("input w: float[24,5]", "input w: float[5,24]");
  replace("Gemm<transB=1>(x, w)", "MatMul(x, w)");
  replace("dx: float[700,5] = MatMul(dscores, w)",
          "dx: float[700,5] = Gemm<transB=1>(dscores, w)");
  replace("dw: float[24,5] = Gemm<transA=1>(dscores, x)",
          "dw: float[5,24] = Gemm<transA=1>(x, dscores)");
  ExpectSameValues(Chunk, text, 2e-6);
  EXPECT_EQ(AfterPass(Chunk, text).find("float[700,24]"), std::string::npos);
}

TEST(ChunkLoss, WithoutGradients) {
  std::string text = kHead + Labels(0, 5) + kForward + "output loss\n";
  ExpectSameValues(Chunk, text, 2e-6);
  EXPECT_EQ(AfterPass(Chunk, text).find("float[700,24]"), std::string::npos);
}

TEST(ChunkLoss, AScaleOfItsOwnForEachChunk) {
  std::string text = kHead + Labels(0, 5) + R"(
qx: float8e4m3fn[700,5], sx: float[], ax: float[] = onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(x)
qw: float8e4m3fn[24,5], sw: float[], aw: float[] = onnx_fp8.QuantizeTensor<to=17, q_max=448.0>(w)
scores: float[700,24] = onnx_fp8.ScaledMatMul<transA=0, transB=1>(qx, sx, qw, sw)
loss: float[], lse: float[700] = onnx_fp8.CrossEntropy<ignore_index=-100>(scores, labels)
dscores: float[700,24] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>(seed, scores, lse, labels)
qd: float8e5m2[700,24], sd: float[], ad: float[] = onnx_fp8.QuantizeTensor<to=19, q_max=57344.0>(dscores)
dx: float[700,5] = onnx_fp8.ScaledMatMul<transA=0, transB=0>(qd, sd, qw, sw)
dw: float[24,5] = onnx_fp8.ScaledMatMul<transA=1, transB=0>(qd, sd, qx, sx)
)";
  for (const char* output : {"ax", "ad"}) {  // the largest of all chunks
    ExpectSameValues(Chunk, text + "output " + output + "\n", 1e-4);
  }
  std::string after =
      AfterPass(Chunk, text + "output dw\noutput dx\noutput ad\n");
  size_t quantizers = 0;
  for (size_t at = 0;
       (at = after.find("QuantizeTensor<", at + 1)) != std::string::npos;) {
    ++quantizers;
  }
  EXPECT_EQ(quantizers, 7u) << after;  // of w, and three of x and of dscores
  EXPECT_NE(after.find("Max("), std::string::npos);
  ExpectStays(Chunk, text + "output dw\noutput sx\n");
}

void ChunkAndJoin(Graph& graph) {
  ChunkLoss(graph, kLogits * 2 / 5, LogitsElsewhere::kJoined);
}

// A graph that is run for its logits as well computes them from the chunks.
TEST(ChunkLoss, JoinsLogitsThatOthersRead) {
  for (const char* output : {"logits", "biased", "scores"}) {
    std::string text = StepText("loss") + "output " + output + "\n";
    ExpectSameValues(ChunkAndJoin, text, 2e-6);
    std::string after = AfterPass(ChunkAndJoin, text);
    EXPECT_NE(after.find("float[188,24]"), std::string::npos) << after;
    EXPECT_NE(after.find(std::string("output ") + output), std::string::npos);
  }
  std::string read = kHead + Labels(0, 5) + kForward + kBackward +
                     "y: float[700,24] = Neg(biased)\noutput dw\noutput y\n";
  ExpectSameValues(ChunkAndJoin, read, 2e-6);
  EXPECT_NE(AfterPass(ChunkAndJoin, read).find("float[188,24]"),
            std::string::npos);
  ExpectStays(ChunkAndJoin, StepText("loss") + "output dscores\n");
  ExpectStays(ChunkAndJoin, StepText("loss") + "output lse\n");
}

// Chunks save the logits of 444 rows, 24 columns, and hold the gradient of the
// input twice: 700 rows, 40 columns.
TEST(ChunkLoss, LeavesWhatTakesMoreMemoryInChunks) {
  std::string text = StepText("dx");
  for (const std::string from : {"x: float[700,5]", "w: float[24,5]"}) {
    const std::string to = from.substr(0, from.size() - 2) + "40]";
    size_t at;
    while ((at = text.find(from)) != text.npos) {
      text.replace(at, from.size(), to);
    }
  }
  ExpectStays(Chunk, text);
}

TEST(ChunkLoss, LeavesWhatOthersRead) {
  for (const std::string& text :
       {StepText("loss") + "output logits\n", StepText("loss") + "output lse\n",
        StepText("loss") + "output dscores\n",
        kHead + Labels(0, 5) + kForward + "y: float[700,24] = Neg(biased)\n" +
            "output loss\noutput y\n",
        // A bias of half as many columns.
        kHead + Labels(0, 5) + R"(
const half: float[12] = {1,2,3,4,5,6,7,8,9,10,11,12}
const pairs: int64[3] = {700,2,12}
product: float[700,24] = Gemm<transB=1>(x, w)
split: float[700,2,12] = Reshape(product, pairs)
biased: float[700,2,12] = Add(split, half)
scores: float[700,24] = Flatten(biased)
loss: float[], lse: float[700] = onnx_fp8.CrossEntropy<ignore_index=-100>(scores, labels)
output loss
)",
        // The product of another orientation.
        kHead + Labels(0, 5) + R"(
input square: float[700,700]
input wide: float[24,700]
scores: float[700,24] = Gemm<transA=1, transB=1>(square, wide)
loss: float[], lse: float[700] = onnx_fp8.CrossEntropy<ignore_index=-100>(scores, labels)
output loss
)"}) {
    ExpectStays(Chunk, text);
  }
  ExpectStays([](Graph& graph) { ChunkLoss(graph, kLogits); },
              StepText("loss"));
  ExpectStays([](Graph& graph) { ChunkLoss(graph, 0); }, StepText("loss"));
}

}  // namespace
}  // namespace onnx_fp8
