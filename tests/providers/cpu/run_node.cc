// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/cpu/run_node.h"

#include <utility>

#include "onnx_fp8/check.h"
#include "providers/cpu/cpu_provider.h"

namespace onnx_fp8 {

std::vector<Tensor> RunNode(const std::string& op,
                            const std::vector<Tensor>& inputs,
                            Attributes attributes, size_t outputs,
                            const std::string& domain) {
  Graph graph;
  std::vector<Value*> operands;
  for (size_t i = 0; i < inputs.size(); ++i) {
    operands.push_back(inputs[i].defined()
                           ? graph.AddInput("x" + std::to_string(i),
                                            inputs[i].dtype(),
                                            inputs[i].shape())
                           : nullptr);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs; ++i) names.push_back("y" + std::to_string(i));
  Node* node =
      graph.AddNode(op, operands, names, std::move(attributes), domain);
  node->name = "n";
  return MakeCpuEvaluator()->Evaluate(*node, inputs);
}

std::string ErrorOf(const std::string& op, const std::vector<Tensor>& inputs,
                    Attributes attributes, size_t outputs,
                    const std::string& domain) {
  try {
    RunNode(op, inputs, std::move(attributes), outputs, domain);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

Tensor Count(const Shape& shape) {
  Tensor x = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = static_cast<float>(i);
  }
  return x;
}

Tensor Floats(const Shape& shape, const std::vector<float>& values) {
  return Tensor::From(shape, values);
}

std::vector<double> Doubles(const Tensor& x) {
  std::vector<double> values;
  for (int64_t i = 0; i < x.size(); ++i) values.push_back(DoubleAt(x, i));
  return values;
}

}  // namespace onnx_fp8
