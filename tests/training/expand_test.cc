// SPDX-License-Identifier: Apache-2.0
//
// graph/passes/expand.h: a node's body gives the same results as its kernel.
#include "graph/passes/expand.h"

#include <cmath>

#include "base/check.h"
#include "base/random.h"
#include "graph/builder.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/schemas.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

constexpr float kBodyTolerance = 2e-5f;

Tensor RandomFloats(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] =
        2 * RandomUniform(seed, static_cast<uint64_t>(i)) - 0.7f;
  }
  return t;
}

Tensor Ints64(const std::vector<int64_t>& values) {
  return Tensor::Ints(values);
}

struct BodyCase {
  std::string name;
  std::string op;
  std::vector<Tensor> inputs;
  Attributes attributes = {};
  size_t outputs = 1;
};

std::vector<BodyCase> BodyCases() {
  Tensor x = RandomFloats({3, 4}, 1), y = RandomFloats({3, 4}, 2),
         row = RandomFloats({4}, 3);
  Tensor image = RandomFloats({2, 4, 3, 2}, 4), channels = RandomFloats({4}, 5);
  Tensor column = RandomFloats({3, 1}, 6);
  Tensor labels = Ints64({1, -100, 3});
  Tensor heads = RandomFloats({2, 3, 8}, 7), cos = RandomFloats({1, 3, 4}, 8),
         sin = RandomFloats({1, 3, 4}, 9);
  Tensor wide = RandomFloats({2, 3, 8}, 11);
  Attributes norm = {{"axis", int64_t{1}}, {"epsilon", 0.1f}};
  Attributes two_heads = {{"heads", int64_t{2}}};
  Attributes ignore = {{"ignore_index", int64_t{-100}}};
  Attributes axis1 = {{"axis", int64_t{1}}};
  Attributes gather = {{"axis", int64_t{0}}, {"shape", Shape{5, 4}}};
  return {
      {"Relu", "Relu", {x}},
      {"EluDefault", "Elu", {x}},
      {"EluAlpha", "Elu", {x}, {{"alpha", 0.5f}}},
      {"Softplus", "Softplus", {x}},
      {"HardSwish", "HardSwish", {x}},
      {"Gelu", "Gelu", {x}},
      {"GeluTanh", "Gelu", {x}, {{"approximate", std::string("tanh")}}},
      {"Softmax", "Softmax", {x}, {{"axis", int64_t{0}}}},
      {"LogSoftmax", "LogSoftmax", {x}},
      {"ClipOneSided", "Clip", {x, Tensor(), Tensor::Scalar(0.2f)}},
      {"LayerNorm", "LayerNormalization", {x, row, row}, {}, 3},
      {"LayerNormNoBias", "LayerNormalization", {x, row}},
      {"RMSNorm", "RMSNormalization", {x, row}, {{"epsilon", 0.1f}}},
      {"GroupNorm",
       "GroupNormalization",
       {image, channels, channels},
       {{"num_groups", int64_t{2}}}},
      {"CrossEntropy", "SoftmaxCrossEntropyLoss", {x, labels}, ignore},
      {"CrossEntropyWeights",
       "SoftmaxCrossEntropyLoss",
       {x, labels, channels},
       ignore,
       2},
      {"NegativeLikelihood", "NegativeLogLikelihoodLoss", {x, labels}, ignore},
      {"SoftmaxGrad", "SoftmaxGrad", {x, y}, axis1},
      {"GeluGrad", "GeluGrad", {x, y}},
      {"GeluTanhGrad", "GeluTanhGrad", {x, y}},
      {"LayerNormGrad", "LayerNormGrad", {x, y, row, column, column}, axis1, 3},
      {"RMSNormGrad",
       "RMSNormGrad",
       {x, y, row},
       {{"axis", int64_t{1}}, {"epsilon", 0.1f}},
       2},
      {"AddLayerNorm", "AddLayerNorm", {x, y, row, channels}, norm, 4},
      {"AddRMSNorm", "AddRMSNorm", {x, y, row}, norm, 2},
      {"AddLayerNormGrad",
       "AddLayerNormGrad",
       {y, x, y, row, column, column},
       axis1,
       3},
      {"AddRMSNormGrad", "AddRMSNormGrad", {y, x, y, row}, norm, 2},
      {"GeluBiasGrad", "GeluBiasGrad", {heads, wide}, {}, 2},
      {"GeluTanhBiasGrad", "GeluTanhBiasGrad", {heads, wide}, {}, 2},
      {"SiluBiasGrad", "SiluBiasGrad", {x, y}, {}, 2},
      {"SwiGLU", "SwiGLU", {x, y}},
      {"SwiGLUGrad", "SwiGLUGrad", {x, y, RandomFloats({3, 4}, 10)}, {}, 2},
      {"Rotary", "Rotary", {heads, cos, sin}, two_heads},
      {"RoundTo", "RoundTo", {heads}, {{"to", int64_t{16}}}},
      {"RotaryGrad", "RotaryGrad", {heads, cos, sin}, two_heads},
      {"GatherGrad", "GatherGrad", {x, Ints64({4, 0, -1})}, gather},
      {"CrossEntropyGrad",
       "SoftmaxCrossEntropyGrad",
       {Tensor::Scalar(0.5f), x, labels},
       ignore},
      {"CrossEntropyWithGrad",
       "CrossEntropyWithGrad",
       {Tensor::Scalar(0.5f), x, labels},
       ignore,
       2},
  };
}

void PrintTo(const BodyCase& c, std::ostream* out) { *out << c.name; }

class Body : public testing::TestWithParam<BodyCase> {};

// The node in a graph whose other operands are graph inputs; names y0, y1, ….
std::map<std::string, Tensor> Feeds(const BodyCase& c, Graph& graph) {
  std::map<std::string, Tensor> feeds;
  std::vector<Value*> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Tensor& data = c.inputs[i];
    std::string name = "x" + std::to_string(i);
    Value* value = nullptr;
    if (data.defined()) {
      value = graph.AddInput(name, data.dtype(), data.shape());
      feeds[name] = data;
    }
    inputs.push_back(value);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < c.outputs; ++i) {
    names.push_back("y" + std::to_string(i));
  }
  bool ours = FindOp(c.op) != nullptr;
  Node* node =
      graph.AddNode(c.op, inputs, names, c.attributes, ours ? kDomain : "");
  node->name = "the node";
  node->metadata["path"] = "a.b";
  InferNode(*node, graph.opset);
  graph.outputs = node->outputs();
  return feeds;
}

TEST_P(Body, GivesWhatTheKernelGives) {
  const BodyCase& c = GetParam();
  auto evaluator = MakeCpuEvaluator();
  Graph graph;
  auto feeds = Feeds(c, graph);
  Node& node = graph.nodes().front();
  ASSERT_TRUE(HasBody(node));
  ASSERT_TRUE(evaluator->CanEvaluate(node)) << "no kernel to compare with";
  std::vector<Tensor> kernel = evaluator->Evaluate(node, c.inputs);
  std::vector<Value*> outputs = graph.outputs;
  std::vector<Shape> shapes;
  for (Value* out : outputs) shapes.push_back(*out->shape);
  ExpandNode(graph, node, evaluator.get());
  EXPECT_EQ(graph.outputs, outputs);
  for (const Node& inner : graph.nodes()) {
    EXPECT_FALSE(inner.op == c.op && inner.domain == node.domain);
    EXPECT_EQ(inner.metadata.at("path"), "a.b");
  }
  auto values = RunGraph(graph, feeds);
  for (size_t i = 0; i < outputs.size(); ++i) {
    EXPECT_EQ(outputs[i]->name, "y" + std::to_string(i));
    EXPECT_EQ(*outputs[i]->shape, shapes[i]);
    const Tensor& body = values[outputs[i]->name];
    ASSERT_EQ(body.shape(), kernel[i].shape());
    for (int64_t k = 0; k < body.size(); ++k) {
      ASSERT_NEAR(DoubleAt(body, k), DoubleAt(kernel[i], k), kBodyTolerance)
          << "output " << i << ", element " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, Body, testing::ValuesIn(BodyCases()),
                         [](const auto& info) { return info.param.name; });

TEST(Expand, KnowsWhatHasABody) {
  Graph graph;
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2});
  auto has = [&](const char* op, const char* domain = "") {
    return HasBody(*graph.AddNode(op, {x}, {}, {}, domain));
  };
  EXPECT_TRUE(has("Gelu"));
  EXPECT_TRUE(has("LayerNormalization"));
  EXPECT_TRUE(has("SoftmaxGrad", kDomain));
  EXPECT_FALSE(has("MatMul"));
  EXPECT_FALSE(has("SoftmaxGrad"));
  EXPECT_FALSE(has("NoSuchOp", kDomain));
}

TEST(Expand, NodesAfterwardsReadTheSameValues) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2});
  Value* y = b.Op("HardSwish", {x});
  Value* z = b.Add(y, y);
  ExpandNode(graph, *y->producer);
  EXPECT_EQ(z->producer->in(0), y);
  EXPECT_EQ(y->uses.size(), 2u);
  graph.Sort();  // no cycle, nothing before its operands
  EXPECT_EQ(z->producer, &graph.nodes().back());
}

TEST(Expand, RefusesWhatItCannotExpand) {
  auto message = [](Shape shape, const char* op) {
    Graph graph;
    Value* x = graph.AddInput("x", DType::kFloat, shape);
    Node* node = graph.AddNode(op, {x}, {"y"});
    try {
      ExpandNode(graph, *node);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(message({2}, "Exp"), "[Exp -> y] has no function body");
  EXPECT_EQ(message({-1}, "Gelu"),
            "[Gelu -> y] expected concrete input shapes to expand it, got "
            "[?]");
}

}  // namespace
}  // namespace onnx_fp8
