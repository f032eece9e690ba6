// SPDX-License-Identifier: Apache-2.0
//
// Every op that runs has a gradient, unless it has no derivative.
#include <gtest/gtest.h>
#include <onnx/defs/schema.h>

#include <algorithm>
#include <set>
#include <string>

#include "graph/passes/expand.h"
#include "providers/cpu/cpu_provider.h"
#include "training/step/gradient_registry.h"

namespace onnx_fp8 {
namespace {

namespace onnx = ONNX_NAMESPACE;

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
      // Ops whose result has a shape that depends on data: bounded_rows.h.
      "Compress", "Unique",
      // Its samples lie where data say.
      "RoiAlign",
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
    graph.opset = 28;
    if (HasBody(*graph.AddNode(op, {}, {"y"}, {}, domain))) continue;
    missing.insert(name);
  }
  EXPECT_EQ(missing, without);
}

// A rule that handles the gradients of a node's first outputs only leaves the
// others to the op's body.
TEST(GradientList, EveryFloatOutputHasARuleOrABody) {
  std::set<std::string> ops, missing;
  for (const onnx::OpSchema& schema :
       onnx::OpSchemaRegistry::get_all_schemas()) {
    if (schema.domain().empty()) ops.insert(schema.Name());
  }
  for (const std::string& op : ops) {
    if (!Gradients().Find("", op) || Gradients().Find("", op) == NoGradient) {
      continue;
    }
    Graph graph;
    graph.opset = 24;
    if (HasBody(*graph.AddNode(op, {}, {"y"}))) continue;
    const auto& outputs = onnx::OpSchemaRegistry::Schema(op)->outputs();
    for (size_t i = 0; i < outputs.size(); ++i) {
      bool any = outputs[i].GetOption() == onnx::OpSchema::Variadic;
      bool floats = std::ranges::any_of(
          outputs[i].GetTypes(),
          [](onnx::DataType type) { return *type == "tensor(float)"; });
      if (floats && !Gradients().Handles("", op, any ? 1000 : i)) {
        missing.insert(op + " " + std::to_string(i));
      }
    }
  }
  EXPECT_EQ(missing, std::set<std::string>());
}

}  // namespace
}  // namespace onnx_fp8
