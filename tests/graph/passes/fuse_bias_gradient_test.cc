// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_bias_gradient.h"

#include <gtest/gtest.h>

#include "tests/graph/fusion.h"

namespace onnx_fp8 {
namespace {

// The sum is the first output: its values are compared.
std::string Text(const std::string& op, const std::string& sum) {
  return R"(graph "g" opset 24
input dy: float[4,6,8]
input x: float[4,6,8]
const shape: int64[2] = {24,8}
const first: int64[1] = {0}
const both: int64[2] = {0,-2}
const last: int64[1] = {1}
dx: float[4,6,8] = )" +
         op + R"((dy, x)
rows: float[24,8] = Reshape(dx, shape)
)" + sum +
         R"(
output db
output dx
output rows
)";
}

const char kOfRows[] = "db: float[1,8] = ReduceSum<keepdims=1>(rows, first)";
const char kOfBoth[] = "db: float[8] = ReduceSum<keepdims=0>(dx, both)";

TEST(FuseBiasGradients, WithTheSumOfRows) {
  EXPECT_EQ(AfterPass(FuseBiasGradients, Text("onnx_fp8.GeluGrad", kOfBoth)),
            R"(graph "g" opset 24
input dy: float[4,6,8]
input x: float[4,6,8]
const shape: int64[2] = {24,8}
const first: int64[1] = {0}
const both: int64[2] = {0,-2}
const last: int64[1] = {1}
dx: float[4,6,8], db: float[8] = onnx_fp8.GeluBiasGrad(dy, x)
rows: float[24,8] = Reshape(dx, shape)
output db
output dx
output rows
)");
  for (const char* op : {"GeluGrad", "GeluTanhGrad", "SiluGrad"}) {
    for (const char* sum : {kOfRows, kOfBoth}) {
      std::string text = Text(std::string("onnx_fp8.") + op, sum);
      std::string after = AfterPass(FuseBiasGradients, text);
      EXPECT_NE(after.find("BiasGrad"), std::string::npos) << after;
      EXPECT_EQ(after.find("ReduceSum"), std::string::npos) << after;
      ExpectSameValues(FuseBiasGradients, text, 1e-6);
    }
  }
}

TEST(FuseBiasGradients, OtherSumsStay) {
  const std::string gelu = "onnx_fp8.GeluGrad";
  for (const std::string& text :
       {Text(gelu, "db: float[24] = ReduceSum<keepdims=0>(rows, last)"),
        Text(gelu, "db: float[6,8] = ReduceSum<keepdims=0>(dx, first)"),
        Text(gelu, "db: float[8] = ReduceMean<keepdims=0>(rows, first)"),
        Text("Mul", kOfRows)}) {
    ExpectStays(FuseBiasGradients, text);
  }
}

}  // namespace
}  // namespace onnx_fp8
