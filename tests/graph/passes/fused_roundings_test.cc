// SPDX-License-Identifier: Apache-2.0
//
// Two ways to round in 16 bits: a graph whose ops are fused, and the same graph
// with the ops of its file. Both must round the same numbers.
#include "graph/passes/fused_roundings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>
#include <string>

#include "graph/passes/fuse_activation.h"
#include "graph/passes/fuse_attention.h"
#include "graph/passes/fuse_norm.h"
#include "graph/passes/fuse_rotary.h"
#include "graph/passes/linear.h"
#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

void AsEvaluated(Graph& graph) {
  NormalizeLinear(graph);
  FuseRotary(graph);
  FuseAttention(graph, true);
  FuseActivations(graph);
  FuseNorms(graph);
  Autocast(graph, DType::kBFloat16);
}

void NodeByNode(Graph& graph) { Autocast(graph, DType::kBFloat16); }

void AsServed(Graph& graph) {
  const FusedRoundings fused = RoundAsFused(graph, DType::kBFloat16);
  EXPECT_EQ(fused.unknown_attention, 0);
  Autocast(graph, DType::kBFloat16, fused.exceptions);
}

// The values of a parameter of n elements, in [-1, 1].
std::string Numbers(int n, unsigned seed) {
  std::ostringstream text;
  for (int i = 0; i < n; ++i) {
    seed = seed * 1664525U + 1013904223U;
    text << (i ? "," : "{") << static_cast<double>(seed >> 8) / 8388608 - 1;
  }
  return text.str() + "}";
}

std::string Parameter(const std::string& name, int rows, int columns) {
  const std::string shape =
      std::to_string(rows) + (columns ? "," + std::to_string(columns) : "");
  return "param " + name + ": float[" + shape + "] = " +
         Numbers(rows * (columns ? columns : 1),
                 static_cast<unsigned>(name.back())) +
         "\n";
}

// The share of elements in which the results of two passes differ.
double Differing(FusionPass a, FusionPass b, const std::string& text) {
  const Tensor x = ResultOf(a, text), y = ResultOf(b, text);
  EXPECT_EQ(x.shape(), y.shape());
  int differing = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(x.data<float>()[i], y.data<float>()[i], 0.05);
    // Two neighbors in bfloat16 are farther apart than this bound. Rounding
    // errors of floats are smaller than it.
    differing += std::fabs(x.data<float>()[i] - y.data<float>()[i]) >
                 1e-5f * std::max(1.0f, std::fabs(x.data<float>()[i]));
  }
  return static_cast<double>(differing) / static_cast<double>(x.size());
}

// Sums in another order are rarely rounded to another number.
void ExpectRoundsAsFused(const std::string& text) {
  EXPECT_GT(Differing(AsEvaluated, NodeByNode, text), 0.05) << text;
  EXPECT_LE(Differing(AsEvaluated, AsServed, text), 0.01) << text;
}

TEST(FusedRoundings, ABiasIsAddedBeforeTheResultIsRounded) {
  const std::string text = Parameter("w", 8, 16) + Parameter("b", 16, 0) +
                           R"(input x: float[2,6,8]
y: float[2,6,16] = MatMul(x, w)
z: float[2,6,16] = Add(y, b)
output z
)";
  ExpectRoundsAsFused(text);
  EXPECT_EQ(AfterPass(AsServed, R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,3]
param b: float[3] = {1,2,3}
y: float[2,3] = MatMul(x, w)
z: float[2,3] = Add(b, y)
output z
)"),
            R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,3]
param b: float[3]
x.RoundTo: float[2,4] = onnx_fp8.RoundTo<to=16>(x)
w.RoundTo: float[4,3] = onnx_fp8.RoundTo<to=16>(w)
y: float[2,3] = MatMul(x.RoundTo, w.RoundTo)
b.RoundTo: float[3] = onnx_fp8.RoundTo<to=16>(b)
z.float: float[2,3] = Add(b.RoundTo, y)
z: float[2,3] = onnx_fp8.RoundTo<to=16>(z.float)
output z
)");
}

// In float16 the bias of a layer stays a float.
TEST(FusedRoundings, ABiasInFloat16) {
  const std::string after = AfterPass(
      [](Graph& graph) {
        const auto fused = RoundAsFused(graph, DType::kFloat16);
        Autocast(graph, DType::kFloat16, fused.exceptions);
      },
      R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,3]
param b: float[3] = {1,2,3}
y: float[2,3] = MatMul(x, w)
z: float[2,3] = Add(y, b)
output z
)");
  EXPECT_NE(after.find("z.float: float[2,3] = Add(y, b)"), std::string::npos)
      << after;
}

// q and k come with half of the scale each, k transposed behind it.
std::string AttentionOf(const std::string& mask, const std::string& guard) {
  return Parameter("w", 8, 8) + Parameter("v", 8, 8) + R"(input x: float[2,5,8]
const heads: int64[4] = {2,5,2,4}
const half: float[] = {0.8408964}
const hidden: bool[5,5] = {0,1,1,1,1,0,0,1,1,1,0,0,0,1,1,0,0,0,0,1,0,0,0,0,0}
const lowest: float[] = {-inf}
const nothing: float[] = {0}
a: float[2,5,8] = MatMul(x, w)
b: float[2,5,8] = MatMul(x, v)
a4: float[2,5,2,4] = Reshape(a, heads)
b4: float[2,5,2,4] = Reshape(b, heads)
q: float[2,2,5,4] = Transpose<perm=[0,2,1,3]>(a4)
k: float[2,2,5,4] = Transpose<perm=[0,2,1,3]>(b4)
qs: float[2,2,5,4] = Mul(q, half)
ks: float[2,2,5,4] = Mul(k, half)
kt: float[2,2,4,5] = Transpose<perm=[0,1,3,2]>(ks)
s: float[2,2,5,5] = MatMul(qs, kt)
)" + mask +
         "p: float[2,2,5,5] = Softmax<axis=-1>(m)\n" + guard +
         "y: float[2,2,5,4] = MatMul(safe, k)\noutput y\n";
}

constexpr char kTriangle[] = "m: float[2,2,5,5] = Where(hidden, lowest, s)\n";

constexpr char kGuard[] = R"(nan: bool[2,2,5,5] = IsNaN(p)
safe: float[2,2,5,5] = Where(nan, nothing, p)
)";

std::string Unguarded(const std::string& mask) {
  std::string text = AttentionOf(mask, "");
  return text.replace(text.find("MatMul(safe"), 11, "MatMul(p");
}

TEST(FusedRoundings, ScoresStayFloatsAndPowersAreRounded) {
  ExpectRoundsAsFused(Unguarded(kTriangle));
  ExpectRoundsAsFused(AttentionOf(kTriangle, kGuard));
}

// A row that sees nothing is 0 behind the guard.
TEST(FusedRoundings, ARowThatSeesNothing) {
  std::string text = AttentionOf(kTriangle, kGuard);
  text.replace(text.find("{0,1,1,1,1,"), 11, "{1,1,1,1,1,");
  const Tensor y = ResultOf(AsServed, text);
  for (int64_t i = 0; i < y.size(); ++i) {
    const bool first_row = i / 4 % 5 == 0;
    EXPECT_EQ(y.data<float>()[i] == 0, first_row) << i;
  }
}

TEST(FusedRoundings, UnknownAttentionIsCounted) {
  // The scores pass a function that is no mask.
  auto graph = ParseGraph(Unguarded("m: float[2,2,5,5] = Tanh(s)\n"));
  EXPECT_EQ(RoundAsFused(*graph, DType::kBFloat16).unknown_attention, 1);
}

TEST(FusedRoundings, Activations) {
  const std::string layer = Parameter("w", 8, 16) + R"(input x: float[6,8]
const two: float[] = {1.4142135}
const one: float[] = {1}
const half: float[] = {0.5}
x1: float[6,16] = MatMul(x, w)
)";
  ExpectRoundsAsFused(layer + R"(scaled: float[6,16] = Div(x1, two)
e: float[6,16] = Erf(scaled)
e1: float[6,16] = Add(e, one)
xe: float[6,16] = Mul(x1, e1)
y: float[6,16] = Mul(xe, half)
output y
)");
  ExpectRoundsAsFused(layer + Parameter("v", 8, 16) +
                      R"(gate: float[6,16] = MatMul(x, v)
s: float[6,16] = Sigmoid(x1)
xs: float[6,16] = Mul(x1, s)
y: float[6,16] = Mul(xs, gate)
output y
)");
}

// Both operands of the sum are rounded; the sum is not.
TEST(FusedRoundings, ResidualStreamsAndNorms) {
  const std::string layers = Parameter("w", 8, 8) + Parameter("v", 8, 8) +
                             Parameter("scale", 8, 0) +
                             Parameter("bias", 8, 0) +
                             R"(input x: float[2,6,8]
const axis: int64[1] = {-1}
const epsilon: float[] = {1e-05}
a: float[2,6,8] = MatMul(x, w)
c: float[2,6,8] = MatMul(x, v)
sum: float[2,6,8] = Add(a, c)
)";
  ExpectRoundsAsFused(
      layers +
      "n: float[2,6,8] = LayerNormalization<axis=-1>(sum, scale, bias)\n"
      "y: float[2,6,8] = Add(n, sum)\noutput y\n");
  const std::string rms =
      R"(mean: float[2,6,1] = ReduceMean<keepdims=1>(xx, axis)
shifted: float[2,6,1] = Add(mean, epsilon)
root: float[2,6,1] = Sqrt(shifted)
h: float[2,6,8] = Div(sum, root)
n: float[2,6,8] = Mul(h, scale)
)";
  const std::string square = "xx: float[2,6,8] = Mul(sum, sum)\n";
  ExpectRoundsAsFused(layers + square + rms +
                      "y: float[2,6,8] = Add(n, sum)\noutput y\n");
  // The sum is no stream, so it is rounded; its square is not.
  ExpectRoundsAsFused(layers + square + rms + "output n\n");
}

}  // namespace
}  // namespace onnx_fp8
