// SPDX-License-Identifier: Apache-2.0
#include "tests/providers/cpu/body_runner.h"

#include <gtest/gtest.h>

#include <map>

#include "graph/onnx/infer_shapes.h"
#include "graph/passes/expand.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/providers/cpu/run_node.h"

namespace onnx_fp8 {

std::vector<Tensor> RunBody(const std::string& op,
                            const std::vector<Tensor>& inputs,
                            const Attributes& attributes, size_t outputs) {
  Graph graph;
  std::vector<Value*> in;
  std::map<const Value*, Tensor> values;
  for (const Tensor& t : inputs) {
    std::string name = "in" + std::to_string(in.size());
    in.push_back(graph.AddInput(name, t.dtype(), t.shape()));
    values[in.back()] = t;
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs; ++i) names.push_back("o" + std::to_string(i));
  Node* node = graph.AddNode(op, in, names, attributes, kDomain);
  graph.outputs = node->outputs();
  InferNode(*node, graph.opset);
  auto evaluator = MakeCpuEvaluator();
  ExpandNode(graph, *node, evaluator.get());
  for (Value* v : graph.Initializers()) values[v] = v->data;
  for (Node& step : graph.nodes()) {
    std::vector<Tensor> operands;
    for (Value* v : step.inputs()) operands.push_back(values[v]);
    auto results = evaluator->Evaluate(step, operands);
    for (size_t i = 0; i < results.size(); ++i)
      values[step.out(i)] = results[i];
  }
  std::vector<Tensor> all;
  for (Value* v : graph.outputs) all.push_back(values[v]);
  return all;
}

void ExpectBodyAndKernelAgree(const std::string& op,
                              const std::vector<Tensor>& inputs,
                              const Attributes& attributes, size_t outputs) {
  auto body = RunBody(op, inputs, attributes, outputs);
  auto kernel = RunNode(op, inputs, attributes, outputs, kDomain);
  for (size_t i = 0; i < outputs; ++i) {
    EXPECT_TRUE(Identical(body[i], kernel[i]))
        << op << " output " << i << ", first input "
        << ToString(inputs[0].shape());
  }
}

std::vector<std::string> Inferred(const std::string& op,
                                  const std::vector<OperandFacts>& inputs,
                                  const Attributes& attributes,
                                  size_t outputs) {
  Graph graph;
  std::vector<Value*> in;
  for (const OperandFacts& o : inputs) {
    in.push_back(
        graph.AddInput("in" + std::to_string(in.size()), o.dtype, o.shape));
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < outputs; ++i) names.push_back("o" + std::to_string(i));
  Node* node = graph.AddNode(op, in, names, attributes, kDomain);
  InferNode(*node, graph.opset);
  std::vector<std::string> all;
  for (Value* v : node->outputs()) {
    all.push_back(Name(v->dtype) + (v->shape ? ToString(*v->shape) : "?"));
  }
  return all;
}

}  // namespace onnx_fp8
