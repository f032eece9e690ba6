// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/autocast.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

void InBFloat16(Graph& graph) { Autocast(graph, DType::kBFloat16); }

std::string After(const std::string& text) {
  return AfterPass(InBFloat16, "graph \"g\" opset 24\n" + text);
}

TEST(Autocast, RoundsOperandsAndResultsOfProducts) {
  EXPECT_EQ(After(R"(input x: float[2,4]
param w: float[4,3] = {1,2,3,4,5,6,7,8,9,10,11,12}
param b: float[3] = {1,2,3}
y: float[2,3] = Gemm(x, w, b)
output y
)"),
            R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,3]
param b: float[3]
x.RoundTo: float[2,4] = onnx_fp8.RoundTo<to=16>(x)
w.RoundTo: float[4,3] = onnx_fp8.RoundTo<to=16>(w)
b.RoundTo: float[3] = onnx_fp8.RoundTo<to=16>(b)
y.float: float[2,3] = Gemm(x.RoundTo, w.RoundTo, b.RoundTo)
y: float[2,3] = onnx_fp8.RoundTo<to=16>(y.float)
output y
)");
}

TEST(Autocast, KeepsABiasInFloat16) {
  std::string text =
      AfterPass([](Graph& graph) { Autocast(graph, DType::kFloat16); },
                R"(graph "g" opset 24
input x: float[2,4]
param w: float[4,3] = {1,2,3,4,5,6,7,8,9,10,11,12}
param b: float[3] = {1,2,3}
y: float[2,3] = Gemm(x, w, b)
output y
)");
  EXPECT_NE(text.find("Gemm(x.RoundTo, w.RoundTo, b)"), std::string::npos)
      << text;
}

TEST(Autocast, RoundsASharedOperandOnce) {
  std::string text = After(R"(input x: float[2,4]
param w: float[4,4] = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}
a: float[2,4] = MatMul(x, w)
b: float[2,4] = MatMul(x, w)
c: float[2,4] = MatMul(a, w)
output b
output c
)");
  EXPECT_NE(text.find("c.float: float[2,4] = MatMul(a, w.RoundTo)"),
            std::string::npos)
      << text;
  size_t rounds = 0;
  for (size_t at = 0;
       (at = text.find("= onnx_fp8.RoundTo", at)) != std::string::npos;) {
    ++rounds;
    ++at;
  }
  EXPECT_EQ(rounds, 5u) << text;  // x, w, a, b, c
}

// A node that reads a product's result r and a float value f.
struct Rule {
  const char* node;
  bool rounds;  // whether y is followed by a RoundTo
};

TEST(Autocast, FollowsTheListsOfPyTorch) {
  const Rule rules[] = {
      {"Add(r, r)", true},
      {"Mul(r, two)", true},  // a number has no say
      {"Add(r, bias)", true},
      {"Mul(r, bias)", false},  // a parameter is float
      {"Add(r, f)", false},
      {"Tanh(r)", true},
      {"Tanh(f)", false},
      {"onnx_fp8.Silu(r)", true},
      {"Softmax<axis=-1>(r)", false},
      {"Exp(r)", false},
      {"Pow(r, two)", false},
      {"LayerNormalization<axis=-1>(r, bias)", false},
      {"onnx_fp8.RMSNorm<axis=-1, epsilon=1e-06>(r, bias)", false},
      // The results of these ops are elements of rounded operands. So they
      // need no RoundTo.
      {"Relu(r)", false},
      {"Max(r, r)", false},
      {"Transpose<perm=[0,1]>(r)", false},
  };
  for (const Rule& rule : rules) {
    std::string text = After(std::string(R"(input x: float[4,4]
input f: float[4,4]
const two: float[] = {2}
param w: float[4,4] = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}
param bias: float[4] = {1,2,3,4}
r: float[4,4] = MatMul(x, w)
y: float[4,4] = )") + rule.node +
                             "\noutput y\n");
    EXPECT_EQ(text.find("y.float") != std::string::npos, rule.rounds) << text;
  }
}

// Whether the second product rounds its operand v again.
TEST(Autocast, KnowsWhichValuesAreRoundedAlready) {
  const Rule rules[] = {
      {"Relu(r)", false},
      {"Reshape(r, shape)", false},
      {"Where(c, r, zero)", false},
      {"Where(c, r, third)", true},  // bfloat16 has no 1/3
      {"Where(c, r, f)", true},
      {"Add(r, r)", false},  // was rounded where it was made
      {"Softmax<axis=-1>(r)", true},
      {"Identity(f)", true},
  };
  for (const Rule& rule : rules) {
    std::string text = After(std::string(R"(input x: float[4,4]
input f: float[4,4]
input c: bool[4,4]
const zero: float[] = {0}
const third: float[] = {0.33333}
const shape: int64[2] = {4,4}
param w: float[4,4] = {1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16}
r: float[4,4] = MatMul(x, w)
v: float[4,4] = )") + rule.node +
                             "\ny: float[4,4] = MatMul(v, w)\noutput y\n");
    EXPECT_EQ(text.find("RoundTo<to=16>(v)") != std::string::npos, rule.rounds)
        << text;
  }
}

}  // namespace
}  // namespace onnx_fp8
