// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_activation.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

const char kErf[] = R"(graph "g" opset 24
input x: float[3,50]
const root: float[] = {1.4142135}
const one: float[] = {1}
const half: float[] = {0.5}
z: float[3,50] = Div(x, root)
t: float[3,50] = Erf(z)
s: float[3,50] = Add(t, one)
h: float[3,50] = Mul(half, s)
y: float[3,50] = Mul(x, h)
output y
)";

TEST(FuseActivations, GeluByErf) {
  EXPECT_EQ(AfterPass(FuseActivations, kErf), R"(graph "g" opset 24
input x: float[3,50]
y: float[3,50] = Gelu<approximate="none">(x)
output y
)");
  ExpectSameValues(FuseActivations, kErf, 5e-7);
}

TEST(FuseActivations, OnnxSwiGLU) {
  const char text[] = R"(graph "g" opset 28
input x: float[3,8]
input g: float[3,8]
a: float[3,8] = SwiGLU(x, g)
b: float[3,8] = SwiGLU<alpha=0.5>(a, g)
s: float[3,8] = Swish(b)
c: float[3,8] = Mul(s, g)
output c
)";
  EXPECT_EQ(AfterPass(FuseActivations, text), R"(graph "g" opset 28
input x: float[3,8]
input g: float[3,8]
a: float[3,8] = onnx_fp8.SwiGLU(x, g)
b: float[3,8] = SwiGLU<alpha=0.5>(a, g)
c: float[3,8] = onnx_fp8.SwiGLU(b, g)
output c
)");
}

// Other orders of its factors in which exporters write it.
TEST(FuseActivations, FactorsInAnyOrder) {
  for (const char* tail :
       {"p: float[8] = Mul(x, s)\ny: float[8] = Mul(p, half)\n",
        "p: float[8] = Mul(x, half)\ny: float[8] = Mul(p, s)\n",
        "p: float[8] = Mul(s, x)\ny: float[8] = Div(p, two)\n"}) {
    std::string text = R"(input x: float[8]
const root: float[] = {0.70710677}
const one: float[] = {1}
const half: float[] = {0.5}
const two: float[] = {2}
z: float[8] = Mul(x, root)
t: float[8] = Erf(z)
s: float[8] = Add(one, t)
)" + std::string(tail) +
                       "output y\n";
    EXPECT_NE(AfterPass(FuseActivations, text).find("y: float[8] = Gelu"),
              std::string::npos)
        << text;
    ExpectSameValues(FuseActivations, text, 5e-7);
  }
}

TEST(FuseActivations, GeluByTanh) {
  for (const char* cube : {"xx: float[8] = Mul(x, x)\nc: float[8] = Mul(x, xx)",
                           "c: float[8] = Pow(x, three)"}) {
    std::string text = R"(input x: float[8]
const three: float[] = {3}
const k: float[] = {0.044715}
const root: float[] = {0.7978846}
const one: float[] = {1}
const half: float[] = {0.5}
)" + std::string(cube) +
                       R"(
kc: float[8] = Mul(k, c)
a: float[8] = Add(x, kc)
u: float[8] = Mul(root, a)
t: float[8] = Tanh(u)
s: float[8] = Add(one, t)
p: float[8] = Mul(x, s)
y: float[8] = Mul(half, p)
output y
)";
    EXPECT_NE(AfterPass(FuseActivations, text).find("<approximate=\"tanh\">"),
              std::string::npos)
        << text;
    ExpectSameValues(FuseActivations, text, 5e-7);
  }
}

// A constant of more axes gives them to the result.
TEST(FuseActivations, LeavesNumbersOfMoreAxes) {
  const std::string gelu = R"(graph "g" opset 24
input x: float[2,3]
const c: float[CAXES] = {1.4142135}
const one: float[ONEAXES] = {1}
const half: float[HALFAXES] = {0.5}
z: float[CSHAPE] = Div(x, c)
e: float[CSHAPE] = Erf(z)
s: float[ONESHAPE] = Add(e, one)
p: float[ONESHAPE] = Mul(x, s)
y: float[HALFSHAPE] = Mul(p, half)
output y
)";
  auto text = [&](int at) {
    std::string filled = gelu;
    int place = 0;
    for (const char* name : {"C", "ONE", "HALF"}) {
      for (auto [what, more, plain] :
           {std::tuple{"AXES", "1,1,1", ""}, {"SHAPE", "1,2,3", "2,3"}}) {
        bool raised = *what == 'A' ? place == at : place >= at;
        std::string key = std::string(name) + what;
        for (size_t i; (i = filled.find("[" + key + "]")) != std::string::npos;)
          filled.replace(i + 1, key.size(), raised ? more : plain);
      }
      ++place;
    }
    return filled;
  };
  EXPECT_NE(AfterPass(FuseActivations, text(3)).find("Gelu"),
            std::string::npos);
  for (int at : {0, 1, 2}) ExpectStays(FuseActivations, text(at));
}

TEST(FuseActivations, Silu) {
  std::string text = R"(input x: float[8]
s: float[8] = Sigmoid(x)
y: float[8] = Mul(s, x)
output y
)";
  EXPECT_EQ(AfterPass(FuseActivations, text), R"(graph "graph" opset 24
input x: float[8]
y: float[8] = onnx_fp8.Silu(x)
output y
)");
  ExpectSameValues(FuseActivations, text, 5e-7);
}

TEST(FuseActivations, SwiGLU) {
  std::string text = R"(input x: float[8]
input w: float[8]
s: float[8] = Sigmoid(x)
xs: float[8] = Mul(x, s)
y: float[8] = Mul(w, xs)
output y
)";
  EXPECT_EQ(AfterPass(FuseActivations, text), R"(graph "graph" opset 24
input x: float[8]
input w: float[8]
y: float[8] = onnx_fp8.SwiGLU(x, w)
output y
)");
  ExpectSameValues(FuseActivations, text, 2e-6);
}

// A gate of another shape, or a value that is read twice.
TEST(FuseActivations, SiluWithoutAGate) {
  for (const char* rest :
       {"y: float[2,8] = Mul(w, xs)\n", "y: float[2,8] = Mul(xs, xs)\n",
        "y: float[2,8] = Mul(v, xs)\noutput xs\n"}) {
    std::string text = std::string(R"(input x: float[2,8]
input w: float[8]
input v: float[2,8]
s: float[2,8] = Sigmoid(x)
xs: float[2,8] = Mul(x, s)
)") + rest + "output y\n";
    std::string after = AfterPass(FuseActivations, text);
    EXPECT_NE(after.find("Silu"), std::string::npos) << after;
    EXPECT_EQ(after.find("SwiGLU"), std::string::npos) << after;
  }
}

TEST(FuseActivations, LeavesWhatItDoesNotKnow) {
  auto replaced = [](std::string text, const std::string& from,
                     const std::string& to) {
    return text.replace(text.find(from), from.size(), to);
  };
  for (const std::string& text :
       {replaced(kErf, "{1.4142135}", "{1.5}"), replaced(kErf, "{1}", "{2}"),
        replaced(kErf, "{0.5}", "{0.25}"),
        replaced(kErf, "Mul(x, h)", "Mul(z, h)"),
        kErf + std::string("output t\n"), kErf + std::string("output h\n")}) {
    ExpectStays(FuseActivations, text);
  }
  std::string silu = R"(input x: float[8]
input w: float[8]
s: float[8] = Sigmoid(x)
y: float[8] = Mul(s, w)
output y
)";
  ExpectStays(FuseActivations, silu);
}

}  // namespace
}  // namespace onnx_fp8
