// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/split_layers.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"
#include "training/ranks/axis_split.h"

namespace onnx_fp8 {
namespace {

std::string Divided(const std::string& text, int64_t tp, int64_t rank = 0,
                    SplitLayersReport* report = nullptr) {
  auto graph = ParseGraph(text);
  SplitLayersReport made = SplitLayers(*graph, {.tp = tp}, rank);
  if (report) *report = made;
  Verify(*graph);
  return Print(*graph);
}

TEST(SplitLayers, ColumnsThenRows) {
  SplitLayersReport report;
  EXPECT_EQ(Divided(R"(graph "g" opset 24
input x: float[3,4]
param w: float[4,8]
param c: float[8]
param v: float[6,8]
param d: float[6]
const k: float[8] = {1,2,3,4,5,6,7,8}
a: float[3,8] = Gemm<transB=0>(x, w, c)
r: float[3,8] = Relu(a)
m: float[3,8] = Mul(r, k)
y: float[3,6] = Gemm<transB=1>(m, v, d)
output y
)",
                    2, 1, &report),
            R"(graph "g" opset 24
input x: float[3,4]
param w: float[4,4]
param c: float[4]
param v: float[6,4]
param d: float[6]
const k: float[4] = {5.0,6.0,7.0,8.0}
x.CopyToRanks: float[3,4] = onnx_fp8.CopyToRanks<group="tp", ranks=2>(x)
a: float[3,4] = Gemm<transB=0>(x.CopyToRanks, w, c)
r: float[3,4] = Relu(a)
m: float[3,4] = Mul(r, k)
y.part: float[3,6] = Gemm<transB=1>(m, v)
y.AllReduce: float[3,6] = onnx_fp8.AllReduce<group="tp", ranks=2, reduction="sum">(y.part)
y: float[3,6] = Add(y.AllReduce, d)
output y
)");
  ASSERT_EQ(report.layers.size(), 2u);
  EXPECT_EQ(report.layers[0].kind, LayerSplit::kColumns);
  EXPECT_EQ(report.layers[0].part, (Shape{4, 4}));
  EXPECT_EQ(report.layers[1].kind, LayerSplit::kRows);
  EXPECT_EQ(report.layers[1].part, (Shape{6, 4}));
  EXPECT_EQ(report.initializers.at("w"), (AxisSplit{1, 1}));
  EXPECT_EQ(report.initializers.at("v"), (AxisSplit{1, 1}));
  EXPECT_EQ(report.initializers.count("d"), 0u);
}

// The divided axis of the first weight has a block for each of q, k and v.
TEST(SplitLayers, BlocksOfOneLayer) {
  SplitLayersReport report;
  Divided(R"(graph "g" opset 24
input x: float[3,4]
param w: float[4,12]
param v: float[4,4]
const heads: int64[3] = {3,2,2}
const flat: int64[2] = {3,4}
y: float[3,12] = Gemm<transB=0>(x, w)
q: float[3,4], k: float[3,4], r: float[3,4] = Split<axis=1, num_outputs=3>(y)
a: float[3,4] = Mul(q, k)
b: float[3,4] = Add(a, r)
h: float[3,2,2] = Reshape<allowzero=1>(b, heads)
t: float[2,3,2] = Transpose<perm=[1,0,2]>(h)
u: float[3,2,2] = Transpose<perm=[1,0,2]>(t)
f: float[3,4] = Reshape<allowzero=1>(u, flat)
z: float[3,4] = Gemm<transB=0>(f, v)
output z
)",
          2, 0, &report);
  EXPECT_EQ(report.initializers.at("w"), (AxisSplit{1, 3}));
  EXPECT_EQ(report.initializers.at("v"), (AxisSplit{0, 1}));
}

struct Refused {
  const char* nodes;
  const char* why;
};

// `a` is what the layer behind it reads.
TEST(SplitLayers, WhyALayerStaysWhole) {
  for (const Refused& c : {
           Refused{"a: float[3,8] = Softmax<axis=-1>(y)",
                   "[Softmax -> a] mixes the divided axis"},
           {"a: float[3,8] = LayerNormalization<axis=-1>(y, k)",
            "[LayerNormalization -> a] mixes the divided axis"},
           {"a: float[3,8] = CumSum(y, one)", "[CumSum -> a] needs whole"},
           {"a: float[3,8] = Add(y, x)", "x is an input"},
           {"t: float[8,3] = Reshape<allowzero=1>(y, turned)\n"
            "a: float[3,8] = Reshape<allowzero=1>(t, back)",
            "mixes the divided axis"},
           {"a: float[3,8] = Gather<axis=1>(y, backwards)",
            "[Gather -> a] mixes the divided axis"},
           {"a: float[3,8] = Slice(y, last_32, far_32, axis_32, last_32)",
            "[Slice -> a] cuts the divided axis"},
           {"a: float[3,8] = Slice(y, lasts, fars, , lasts)",
            "[Slice -> a] cuts the divided axis"},
           {"a: float[3,8] = Slice(y, lasts, fars, axes, unknown)",
            "[Slice -> a] cuts the divided axis"},
           {"r: float[] = ReduceSum<keepdims=0>(y, nothing)\n"
            "a: float[3,8] = Mul(y, r)",
            "[ReduceSum -> r] may mix all axes"},
           {"r: float[3,8] = ReduceSum<noop_with_empty_axes=1>(y, nothing)\n"
            "a: float[3,8] = Neg(r)",
            "[ReduceSum -> r] may mix all axes"},
           {"r: float[3] = MatMul(y, k)\n"
            "u: float[3,1] = Reshape<allowzero=1>(r, column)\n"
            "a: float[3,8] = Mul(y, u)",
            "[MatMul -> r] needs whole operands"},
           {"r: float[3,1,8] = Unsqueeze(y, one_axis)\n"
            "a: float[3,8] = Squeeze(r)",
            "[Squeeze -> a] needs whole operands"},
           {"p: float[1,8], _ = Split<axis=0>(y, one_of_three)\n"
            "a: float[3,8] = Expand(p, back)",
            "[Split -> p] has a piece without a name"},
       }) {
    SplitLayersReport report;
    Divided(std::string(R"(graph "g" opset 24
input x: float[3,8]
param w: float[8,8]
param v: float[8,6]
const k: float[8] = {1,2,3,4,5,6,7,8}
const one: int64[] = {1}
const turned: int64[2] = {8,3}
const back: int64[2] = {3,8}
const backwards: int64[8] = {7,6,5,4,3,2,1,0}
const last_32: int32[1] = {-1}
const far_32: int32[1] = {-100}
const axis_32: int32[1] = {-1}
const lasts: int64[2] = {-1,-1}
const fars: int64[2] = {-100,-100}
const axes: int64[2] = {0,1}
input unknown: int64[2]
const nothing: int64[0]
const one_of_three: int64[2] = {1,2}
const column: int64[2] = {3,1}
const one_axis: int64[1] = {1}
y: float[3,8] = Gemm<transB=0>(x, w)
)") + c.nodes +
                "\nz: float[3,6] = Gemm<transB=0>(a, v)\n"
                "s: float[3,6] = Softmax<axis=-1>(z)\noutput s\n",
            2, 0, &report);
    for (const LayerSplit& layer : report.layers) {
      EXPECT_EQ(layer.kind, LayerSplit::kWhole) << c.nodes;
    }
    EXPECT_NE(report.layers.back().why.find(c.why), std::string::npos)
        << c.nodes << ": " << report.layers.back().why;
    EXPECT_TRUE(report.initializers.empty());
  }
}

TEST(SplitLayers, RanksThatDoNotDivide) {
  SplitLayersReport report;
  Divided(R"(graph "g" opset 24
input x: float[3,4]
param w: float[4,8]
param v: float[8,6]
a: float[3,8] = Gemm<transB=0>(x, w)
y: float[3,6] = Gemm<transB=0>(a, v)
s: float[3,6] = Softmax<axis=-1>(y)
output s
)",
          5, 0, &report);
  EXPECT_EQ(report.layers[1].why, "5 ranks do not divide axis 1 of a, [3,8]");
}

// Two ranks have 3 and 2 of 5 classes; a zero follows the latter.
TEST(SplitLayers, ZerosBehindParts) {
  struct Between {
    const char* nodes;
    LayerSplit::Kind kind;
  };
  for (const Between& c :
       {Between{"s: float[3,5] = Tanh(y)", LayerSplit::kColumns},
        {"s: float[3,5] = Div(y, five)", LayerSplit::kWhole},
        {"s: float[3,5] = Div(y, two)", LayerSplit::kColumns},
        {"s: float[3,5] = Log(y)", LayerSplit::kWhole},
        {"s: float[3,5] = Sqrt(y)", LayerSplit::kWhole},
        {"s: float[3,5] = Pow(y, five)", LayerSplit::kWhole}}) {
    SplitLayersReport report;
    Divided(std::string(R"(graph "g" opset 24
input x: float[3,4]
input labels: int64[3]
param w: float[4,5]
const five: float[5] = {1,2,3,4,5}
const two: float[] = {2}
y: float[3,5] = Gemm<transB=0>(x, w)
)") + c.nodes +
                "\nl: float[], _ = onnx_fp8.CrossEntropy<ignore_index=-100>(s, "
                "labels)\noutput l\n",
            2, 0, &report);
    EXPECT_EQ(report.layers[0].kind, c.kind) << c.nodes;
  }
}

// Elements of parts are dropped by each rank's own numbers, elements of whole
// values by the same ones.
TEST(SplitLayers, Dropout) {
  const std::string text = Divided(R"(graph "g" opset 24
input x: float[3,4]
param w: float[4,8]
param v: float[8,6]
const ratio: float[] = {0.5}
const on: bool[] = {1}
a: float[3,8] = Gemm<transB=0>(x, w)
d: float[3,8] = Dropout(a, ratio, on)
y: float[3,6] = Gemm<transB=0>(d, v)
e: float[3,6] = Dropout(y, ratio, on)
s: float[3,6] = Softmax<axis=-1>(e)
output s
)",
                                   2, 1);
  EXPECT_NE(text.find("d: float[3,4] = Dropout(a, ratio, on)  # d.rank1"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("e: float[3,6] = Dropout(y, ratio, on)\n"),
            std::string::npos)
      << text;
}

TEST(AxisSplit, PartsOfBlocks) {
  Tensor whole = Tensor::Allocate(DType::kInt64, {2, 6, 2});
  for (int64_t i = 0; i < whole.size(); ++i) whole.data<int64_t>()[i] = i;
  const AxisSplit split = {1, 3};
  const Tensor part = PartOf(whole, split, 1, 2);
  ASSERT_EQ(part.shape(), (Shape{2, 3, 2}));
  const std::vector<int64_t> want = {2,  3,  6,  7,  10, 11,
                                     14, 15, 18, 19, 22, 23};
  EXPECT_TRUE(std::equal(want.begin(), want.end(), part.data<int64_t>()));
  Tensor again = Tensor::Zeros(DType::kInt64, whole.shape());
  for (int64_t rank : {0, 1}) {
    PutPart(PartOf(whole, split, rank, 2), split, rank, 2, &again);
  }
  EXPECT_TRUE(std::equal(whole.data<int64_t>(),
                         whole.data<int64_t>() + whole.size(),
                         again.data<int64_t>()));
}

// Three ranks have 3, 3 and 2 of 8 rows.
TEST(AxisSplit, PartsThatEndWithZeros) {
  Tensor whole = Tensor::Allocate(DType::kInt64, {2, 8});
  for (int64_t i = 0; i < whole.size(); ++i) whole.data<int64_t>()[i] = i + 1;
  const AxisSplit split = {1, 1};
  const Tensor last = PartOf(whole, split, 2, 3);
  ASSERT_EQ(last.shape(), (Shape{2, 3}));
  const std::vector<int64_t> want = {7, 8, 0, 15, 16, 0};
  EXPECT_TRUE(std::equal(want.begin(), want.end(), last.data<int64_t>()));
  Tensor again = Tensor::Zeros(DType::kInt64, whole.shape());
  for (int64_t rank : {0, 1, 2}) {
    PutPart(PartOf(whole, split, rank, 3), split, rank, 3, &again);
  }
  EXPECT_TRUE(std::equal(whole.data<int64_t>(),
                         whole.data<int64_t>() + whole.size(),
                         again.data<int64_t>()));
}

}  // namespace
}  // namespace onnx_fp8
