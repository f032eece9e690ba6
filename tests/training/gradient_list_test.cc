// SPDX-License-Identifier: Apache-2.0
//
// Every op that runs has a gradient, unless it has no derivative.
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "graph/passes/expand.h"
#include "providers/cpu/cpu_provider.h"
#include "training/gradients.h"

namespace onnx_fp8 {
namespace {

TEST(GradientList, EveryOpWithAKernelAndADerivativeHasARule) {
  std::set<std::string> without = {
      // Ops on integers and booleans.
      "And", "BitShift", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
      "Not", "Or", "Xor",
      // Ops on integer codes; trained_parameters treats their scales as
      // constants.
      "ConvInteger", "DequantizeLinear", "MatMulInteger", "QLinearConv",
      "QLinearMatMul", "QuantizeLinear",
      // Ops without operands.
      "Constant", "RandomNormal", "RandomUniform",
      // Ops whose result has a shape that depends on data.
      "Compress", "Unique",
      // Import makes it another op: ScatterElements.
      "Scatter",
      // They are unrolled before.
      "GRU", "LSTM", "RNN"};
  std::set<std::string> missing;
  for (const std::string& name : MakeCpuProvider()->Kernels().Names()) {
    size_t dot = name.find('.');
    std::string domain = dot == std::string::npos ? "" : name.substr(0, dot);
    std::string op = dot == std::string::npos ? name : name.substr(dot + 1);
    if (Gradients().Find(domain, op)) continue;
    Graph graph;
    graph.opset = 24;
    if (HasBody(*graph.AddNode(op, {}, {"y"}, {}, domain))) continue;
    missing.insert(name);
  }
  EXPECT_EQ(missing, without);
}

}  // namespace
}  // namespace onnx_fp8
