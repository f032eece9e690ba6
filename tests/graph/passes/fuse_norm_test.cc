// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_norm.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

// `square` computes xx, `scaled` computes h from x and root.
std::string Norm(const std::string& square, const std::string& scaled) {
  return R"(graph "g" opset 24
input x: float[2,3,8]
const two: float[] = {2}
const one: float[] = {1}
const axes: int64[1] = {-1}
const epsilon: float[] = {1e-06}
param w: float[8] = {1,2,3,4,-1,-2,0.5,1}
)" + square +
         R"(
mean: float[2,3,1] = ReduceMean<keepdims=1>(xx, axes)
shifted: float[2,3,1] = Add(mean, epsilon)
root: float[2,3,1] = Sqrt(shifted)
)" + scaled +
         R"(
y: float[2,3,8] = Mul(w, h)
output y
)";
}

const char kProduct[] = "xx: float[2,3,8] = Mul(x, x)";
const char kInverse[] =
    "i: float[2,3,1] = Reciprocal(root)\nh: float[2,3,8] = Mul(x, i)";

TEST(FuseNorms, RmsNormHoweverItIsWritten) {
  EXPECT_EQ(AfterPass(FuseNorms, Norm(kProduct, kInverse)),
            R"(graph "g" opset 24
input x: float[2,3,8]
param w: float[8]
y: float[2,3,8] = onnx_fp8.RMSNorm<axis=-1, epsilon=1e-06>(x, w)
output y
)");
  for (const char* square : {kProduct, "xx: float[2,3,8] = Pow(x, two)"}) {
    for (const char* scaled :
         {kInverse, "h: float[2,3,8] = Div(x, root)",
          "i: float[2,3,1] = Div(one, root)\nh: float[2,3,8] = Mul(i, x)"}) {
      std::string text = Norm(square, scaled);
      EXPECT_NE(AfterPass(FuseNorms, text).find("RMSNorm"), std::string::npos)
          << text;
      ExpectSameValues(FuseNorms, text, 2e-6);
    }
  }
}

TEST(FuseNorms, LeavesWhatItDoesNotKnow) {
  for (const std::string& text :
       {Norm("xx: float[2,3,8] = Pow(x, one)", kInverse),
        Norm("xx: float[2,3,8] = Mul(x, w)", kInverse),
        Norm(kProduct, "h: float[2,3,8] = Mul(x, root)"),
        Norm(kProduct, "h: float[2,3,8] = Div(xx, root)"),
        Norm(kProduct, kInverse) + "output root\n"}) {
    ExpectStays(FuseNorms, text);
  }
}

// x is a sum, y is its norm; both are read.
std::string Residual(const std::string& norm, const std::string& more = "") {
  return R"(graph "g" opset 24
input a: float[2,3,8]
input b: float[2,3,8]
input row: float[8]
param w: float[8] = {1,2,3,4,-1,-2,0.5,1}
param v: float[8] = {1,2,0,0,-1,2,3,4}
)" + more +
         "y: float[2,3,8] = " + norm + R"(
z: float[2,3,8] = Add(x, y)
output z
)";
}

const char kLayerNorm[] = "LayerNormalization<axis=-1>(x, w, v)";
const char kSum[] = "x: float[2,3,8] = Add(a, b)\n";

// A constant of more axes gives them to the result.
TEST(FuseNorms, LeavesAnEpsilonOfMoreAxes) {
  ExpectStays(FuseNorms, R"(graph "g" opset 24
input x: float[3,8]
const axes: int64[1] = {-1}
const epsilon: float[1,1,1] = {1e-06}
param w: float[8] = {1,2,3,4,-1,-2,0.5,1}
xx: float[3,8] = Mul(x, x)
mean: float[3,1] = ReduceMean<keepdims=1>(xx, axes)
shifted: float[1,3,1] = Add(mean, epsilon)
root: float[1,3,1] = Sqrt(shifted)
h: float[1,3,8] = Div(x, root)
y: float[1,3,8] = Mul(w, h)
output y
)");
}

TEST(FuseNorms, ResidualStream) {
  std::string text = Residual(kLayerNorm, kSum);
  EXPECT_EQ(AfterPass(FuseNorms, text), R"(graph "g" opset 24
input a: float[2,3,8]
input b: float[2,3,8]
input row: float[8]
param w: float[8]
param v: float[8]
x: float[2,3,8], y: float[2,3,8], y.AddLayerNorm.2: float[2,3,1], y.AddLayerNorm.3: float[2,3,1] = onnx_fp8.AddLayerNorm<axis=-1, epsilon=1e-05>(a, b, w, v)
z: float[2,3,8] = Add(x, y)
output z
)");
  ExpectSameValues(FuseNorms, text, 1e-6);
  std::string rms =
      Residual("onnx_fp8.RMSNorm<axis=-1, epsilon=1e-06>(x, w)", kSum);
  EXPECT_NE(AfterPass(FuseNorms, rms).find("AddRMSNorm"), std::string::npos);
  ExpectSameValues(FuseNorms, rms, 1e-6);
}

TEST(FuseNorms, OtherSumsStay) {
  for (const std::string& text :
       {Residual(kLayerNorm, "x: float[2,3,8] = Add(a, row)\n"),
        Residual(kLayerNorm, "x: float[2,3,8] = Mul(a, b)\n"),
        Residual("LayerNormalization<axis=1>(x, x, x)", kSum),
        Residual("LayerNormalization<axis=-1>(x, w)", kSum),
        // Only the norm reads it.
        Residual("LayerNormalization<axis=-1>(s, w, v)",
                 std::string("s: float[2,3,8] = Add(a, b)\n") +
                     "x: float[2,3,8] = Mul(a, b)\n")}) {
    ExpectStays(FuseNorms, text);
  }
}

}  // namespace
}  // namespace onnx_fp8
