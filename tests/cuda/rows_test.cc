// SPDX-License-Identifier: Apache-2.0
//
// Ops over rows on the GPU beside the CPU: a warp or a block keeps a row in
// registers, and long rows are read again.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "tests/cuda/beside_cpu.h"

namespace onnx_fp8 {
namespace {

// Puts `n` in the place of each $.
std::string WithSize(std::string text, int64_t n) {
  for (size_t at; (at = text.find('$')) != std::string::npos;) {
    text.replace(at, 1, std::to_string(n));
  }
  return "graph \"g\" opset 24\n" + text;
}

// All kinds of threads, sizes that are no multiple of a vector, long rows.
class CudaRowsTest : public testing::TestWithParam<int64_t> {};

constexpr char kNorms[] = R"(input x: float[3,$]
input z: float[3,$]
input w: float[$]
input b: float[$]
y1: float[3,$], m1: float[3,1], s1: float[3,1] = LayerNormalization(x, w, b)
y2: float[3,$] = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(x, w)
t3: float[3,$], y3: float[3,$], m3: float[3,1], s3: float[3,1] = onnx_fp8.AddLayerNorm<axis=-1, epsilon=1e-05>(x, z, w, b)
t4: float[3,$], y4: float[3,$] = onnx_fp8.AddRMSNorm<axis=-1, epsilon=1e-05>(x, z, w)
)";

// Scales and biases that differ from row to row, or have fewer elements.
constexpr char kNormsOfOwnWeights[] = R"(input x: float[3,$]
input z: float[3,$]
input own: float[3,$]
input own2: float[3,$]
input w: float[$]
input column: float[3,1]
input one: float[1]
y1: float[3,$], m1: float[3,1], s1: float[3,1] = LayerNormalization(x, own, own2)
y2: float[3,$] = LayerNormalization(x, column, w)
y3: float[3,$] = LayerNormalization(x, one, own)
y4: float[3,$] = LayerNormalization(x, w, column)
y5: float[3,$] = RMSNormalization(x, own)
y6: float[3,$] = RMSNormalization(x, one)
y7: float[3,$] = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(x, column)
)";

constexpr char kGradients[] = R"(input x: float[21,$]
input z: float[21,$]
input w: float[$]
input m: float[21,1]
y1: float[21,$], s1: float[$], b1: float[$] = onnx_fp8.LayerNormGrad<axis=1>(x, z, w, m, m)
y2: float[21,$], s2: float[$] = onnx_fp8.RMSNormGrad<axis=1, epsilon=1e-05>(x, z, w)
y3: float[21,$], s3: float[$], b3: float[$] = onnx_fp8.AddLayerNormGrad<axis=1>(z, x, z, w, m, m)
y4: float[21,$], s4: float[$] = onnx_fp8.AddRMSNormGrad<axis=1, epsilon=1e-05>(z, x, z, w)
)";

// The residual stream is float, as PyTorch's autocast keeps it.
constexpr char kStream[] = R"(input stream: float[21,$]
input stream_grad: float[21,$]
input z: float[21,$]
input w: float[$]
input b: float[$]
input m: float[21,1]
y1: float[21,$], m1: float[21,1], s1: float[21,1] = LayerNormalization(stream, w, b)
y2: float[21,$] = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-05>(stream, w)
stream_3: float[21,$], y3: float[21,$], m3: float[21,1], s3: float[21,1] = onnx_fp8.AddLayerNorm<axis=-1, epsilon=1e-05>(stream, z, w, b)
stream_4: float[21,$], y4: float[21,$] = onnx_fp8.AddRMSNorm<axis=-1, epsilon=1e-05>(z, stream, w)
stream_5: float[21,$], s5: float[$], b5: float[$] = onnx_fp8.LayerNormGrad<axis=1>(z, stream, w, m, m)
stream_6: float[21,$], s6: float[$] = onnx_fp8.RMSNormGrad<axis=1, epsilon=1e-05>(z, stream, w)
stream_7: float[21,$], s7: float[$], b7: float[$] = onnx_fp8.AddLayerNormGrad<axis=1>(stream_grad, z, stream, w, m, m)
stream_8: float[21,$], s8: float[$] = onnx_fp8.AddRMSNormGrad<axis=1, epsilon=1e-05>(stream_grad, z, stream, w)
)";

constexpr char kLosses[] = R"(input x: float[6,$]
input w: float[$]
input share: float[]
const labels: int64[6] = {0,-100,0,0,-100,0}
y1: float[], e1: float[6] = onnx_fp8.CrossEntropy<ignore_index=-100>(x, labels)
y2: float[6,$] = onnx_fp8.CrossEntropyGrad<ignore_index=-100>(share, x, e1, labels)
y3: float[], p3: float[6,$] = SoftmaxCrossEntropyLoss<ignore_index=-100>(x, labels, w)
y4: float[6], p4: float[6,$] = SoftmaxCrossEntropyLoss<ignore_index=-100, reduction="none">(x, labels)
y5: float[6,$] = onnx_fp8.SoftmaxCrossEntropyGrad<ignore_index=-100>(share, p3, labels)
y6: float[] = NegativeLogLikelihoodLoss<ignore_index=-100, reduction="sum">(p3, labels, w)
y7: float[], y8: float[6,$] = onnx_fp8.CrossEntropyWithGrad<ignore_index=-100>(share, x, labels)
)";

// A row of one element has a gradient of almost 0, the difference of larger
// numbers.
double BoundOfGradients(int64_t n) { return n == 1 ? 1e-4 : 5e-6; }

TEST_P(CudaRowsTest, Norms) {
  ExpectCpusResults(WithSize(kNorms, GetParam()), 5e-6);
  ExpectCpusResults(WithSize(kNormsOfOwnWeights, GetParam()), 5e-6);
}

TEST_P(CudaRowsTest, GradientsOfNorms) {
  ExpectCpusResults(WithSize(kGradients, GetParam()),
                    BoundOfGradients(GetParam()));
}

TEST_P(CudaRowsTest, In16Bits) {
  ExpectCpusResultsIn16Bits(WithSize(kNorms, GetParam()), 5e-6);
  ExpectCpusResultsIn16Bits(WithSize(kNormsOfOwnWeights, GetParam()), 5e-6);
  ExpectCpusResultsIn16Bits(WithSize(kGradients, GetParam()),
                            BoundOfGradients(GetParam()));
  ExpectCpusResultsIn16Bits(WithSize(kStream, GetParam()),
                            BoundOfGradients(GetParam()));
  ExpectCpusResultsIn16Bits(WithSize(kLosses, GetParam()), 5e-6);
}

TEST_P(CudaRowsTest, Softmax) {
  ExpectCpusResults(WithSize(R"(input x: float[5,$]
input z: float[5,$]
y1: float[5,$] = Softmax(x)
y2: float[5,$] = LogSoftmax(x)
y3: float[5,$] = onnx_fp8.SoftmaxGrad<axis=1>(z, x)
y4: float[5,$] = Softmax<axis=0>(x)
y5: float[5,$] = LogSoftmax<axis=0>(x)
y6: float[5,$] = onnx_fp8.SoftmaxGrad<axis=0>(z, x)
)",
                             GetParam()),
                    5e-6);
}

TEST_P(CudaRowsTest, Losses) {
  ExpectCpusResults(WithSize(kLosses, GetParam()), 5e-6);
}

INSTANTIATE_TEST_SUITE_P(Sizes, CudaRowsTest,
                         testing::Values(1, 50, 130, 200, 300, 1000, 1501, 1504,
                                         3000, 5001, 5004, 9001, 9004, 17000),
                         testing::PrintToStringParamName());

TEST(CudaRows, HaveManyOrNone) {
  for (int64_t rows : {0, 9001}) {
    ExpectCpusResults(WithSize(R"(input x: float[$,6]
input w: float[6]
input m: float[$,1]
const labels: int64[$]
y1: float[$,6], m1: float[$,1], s1: float[$,1] = LayerNormalization(x, w)
y2: float[$,6], s2: float[6], b2: float[6] = onnx_fp8.LayerNormGrad<axis=1>(x, x, w, m, m)
y3: float[$,6] = Softmax(x)
y4: float[$,6] = Softmax<axis=0>(x)
y5: float[], e5: float[$] = onnx_fp8.CrossEntropy<ignore_index=-100>(x, labels)
y6: float[], y7: float[$,6] = onnx_fp8.CrossEntropyWithGrad<ignore_index=-100>(y5, x, labels)
)",
                               rows),
                      1e-5);
  }
}

TEST(CudaRows, TurnWholeVectors) {
  const std::string text = R"(graph "g" opset 24
input x: float[2,7,48]
input six: float[2,7,96]
input nine: float[2,7,144]
input cos: float[2,7,16]
input sin: float[2,7,16]
y: float[2,7,48] = onnx_fp8.Rotary<heads=3>(x, cos, sin)
z: float[2,7,48] = onnx_fp8.RotaryGrad<heads=3>(x, cos, sin)
y6: float[2,7,96] = onnx_fp8.Rotary<heads=6>(six, cos, sin)
z6: float[2,7,96] = onnx_fp8.RotaryGrad<heads=6>(six, cos, sin)
y9: float[2,7,144] = onnx_fp8.Rotary<heads=9>(nine, cos, sin)
z9: float[2,7,144] = onnx_fp8.RotaryGrad<heads=9>(nine, cos, sin)
)";
  ExpectCpusResults(text, 0);
  ExpectCpusResultsIn16Bits(text, 0);
}

// One kernel rounds all of them; a tensor may have no whole vector, or several
// blocks.
TEST(CudaRows, RoundManyTensors) {
  ExpectCpusResultsIn16Bits(R"(graph "g" opset 24
input a: float[3]
input b: float[5003]
input c: float[40001]
input d: float[4096]
input none: float[0]
ra: float[3] = onnx_fp8.RoundTo<to=16>(a)
rb: float[5003] = onnx_fp8.RoundTo<to=16>(b)
rc: float[40001] = onnx_fp8.RoundTo<to=16>(c)
rd: float[4096] = onnx_fp8.RoundTo<to=10>(d)
rn: float[0] = onnx_fp8.RoundTo<to=16>(none)
stream_a: float[3] = onnx_fp8.RoundTo<to=16>(a)
)",
                            0);
}

TEST(CudaRows, RefuseWhatTheyCanNotDo) {
  const std::string error = ErrorOnGpu(R"(graph "g" opset 24
input x: float[3,4]
const labels: int64[3] = {0,7,-100}
y: float[], e: float[3] = onnx_fp8.CrossEntropy<ignore_index=-100>(x, labels)
)");
  EXPECT_NE(error.find("expected labels in 0 … 3 or -100 (left out), got 7"),
            std::string::npos)
      << error;
}

}  // namespace
}  // namespace onnx_fp8
