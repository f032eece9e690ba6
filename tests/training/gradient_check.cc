// SPDX-License-Identifier: Apache-2.0
#include "tests/training/gradient_check.h"

#include <cmath>
#include <unordered_map>

#include "base/check.h"
#include "base/random.h"
#include "graph/builder.h"
#include "graph/onnx/infer_shapes.h"
#include "graph/passes/expand.h"
#include "graph/passes/unroll_recurrent.h"
#include "providers/cpu/cpu_provider.h"
#include "training/make_provider.h"
#include "training/step/autodiff.h"

namespace onnx_fp8 {

void PrintTo(const GradientCase& gradient_case, std::ostream* out) {
  *out << gradient_case.name;
}

namespace {

// Step of the difference quotient. The formula's error is h²/6 f''', the
// rounding error 2⁻⁵³ |f| / h; both are below 1e-9 here.
constexpr double kStep = 1e-5;
constexpr double kDifferenceTolerance = 1e-6;

Tensor RandomBetween(const Shape& shape, uint64_t seed, double low,
                     double high) {
  Tensor t = Tensor::Allocate(DType::kDouble, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    double u = RandomUniform(seed, static_cast<uint64_t>(i));
    t.data<double>()[i] = low + (high - low) * u;
  }
  return t;
}

uint64_t Seed(const std::string& name) {
  uint64_t seed = 0;
  for (char ch : name) {
    seed = RandomBits(seed, static_cast<unsigned char>(ch));
  }
  return seed;
}

void ExpandWithoutKernel(Graph& graph, const Evaluator& evaluator) {
  for (bool again = true; again;) {
    again = false;
    for (auto it = graph.nodes().begin(); it != graph.nodes().end();) {
      Node& node = *it++;
      if (evaluator.CanEvaluate(node)) continue;
      Check(HasBody(node), "[", node.Where(), "] has neither kernel nor body");
      ExpandNode(graph, node, &evaluator);
      again = true;
    }
  }
}

struct Problem {
  Graph graph;
  std::vector<Value*> wanted;
  Value* loss;
  TensorMap feeds;
};

void Build(const GradientCase& c, Problem& p) {
  p.graph.opset = 28;  // the newest
  std::vector<Value*> inputs;
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    const Operand& operand = c.inputs[i];
    std::string name = "x" + std::to_string(i);
    Value* value = nullptr;
    if (operand.wanted) {
      const Shape& shape = operand.data.shape();
      value = p.graph.AddInput(name, operand.data.dtype(), shape);
      p.feeds[name] = operand.low == operand.high
                          ? operand.data
                          : RandomBetween(shape, Seed(c.name) + i, operand.low,
                                          operand.high);
      p.wanted.push_back(value);
    } else if (operand.data.defined()) {
      value = p.graph.AddInitializer(name, operand.data);
    }
    inputs.push_back(value);
  }
  std::vector<std::string> names;
  for (size_t i = 0; i < c.outputs; ++i) {
    names.push_back("y" + std::to_string(i));
  }
  size_t dot = c.op.find('.');
  bool ours = dot != std::string::npos;
  Node* node =
      p.graph.AddNode(ours ? c.op.substr(dot + 1) : c.op, inputs, names,
                      c.attributes, ours ? c.op.substr(0, dot) : "");
  InferNode(*node, p.graph.opset);
  Builder b(p.graph);
  p.loss = nullptr;
  for (size_t i = 0; i < c.outputs; ++i) {
    Value* y = node->out(i);
    ASSERT_TRUE(y->concrete()) << y->name;
    if (!IsFloat(y->dtype)) continue;
    Value* weights = b.Constant(RandomBetween(*y->shape, 1000 + i, 0.5, 1.5));
    Value* part = b.SumTo(b.Mul(b.Cast(y, DType::kDouble), weights), {});
    p.loss = p.loss ? b.Add(p.loss, part) : part;
  }
}

// Nodes that `value` depends on, in order.
std::vector<Node*> Ancestors(Graph& graph, const Value* value) {
  std::unordered_map<const Value*, bool> needed = {{value, true}};
  std::vector<Node*> nodes;
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it) {
    bool any = false;
    for (const Value* out : it->outputs()) any |= needed.contains(out);
    if (!any) continue;
    for (const Value* in : it->inputs()) needed[in] = true;
    nodes.insert(nodes.begin(), &*it);
  }
  return nodes;
}

using ValueMap = std::unordered_map<const Value*, Tensor>;

void RunNodes(const std::vector<Node*>& nodes, const Evaluator& evaluator,
              ValueMap& values) {
  for (Node* node : nodes) {
    std::vector<Tensor> inputs;
    for (const Value* in : node->inputs()) {
      inputs.push_back(!in                    ? Tensor()
                       : in->is_initializer() ? in->data
                                              : values.at(in));
    }
    std::vector<Tensor> outputs = evaluator.Evaluate(*node, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node->out(i)) values[node->out(i)] = outputs[i];
    }
  }
}

ValueMap Fed(const Graph& graph, const TensorMap& feeds) {
  ValueMap values;
  for (const Value* input : graph.inputs) {
    values[input] = feeds.at(input->name);
  }
  return values;
}

double Loss(const Problem& p, const std::vector<Node*>& nodes,
            const Evaluator& evaluator) {
  ValueMap values = Fed(p.graph, p.feeds);
  RunNodes(nodes, evaluator, values);
  return DoubleAt(values.at(p.loss), 0);
}

// d loss / d element, for all elements of all wanted operands.
std::map<std::string, std::vector<double>> Differences(
    Problem& p, const Evaluator& evaluator) {
  std::vector<Node*> nodes = Ancestors(p.graph, p.loss);
  std::map<std::string, std::vector<double>> all;
  for (const Value* value : p.wanted) {
    Tensor original = p.feeds[value->name];
    std::vector<double>& differences = all[value->name];
    for (int64_t i = 0; i < original.size(); ++i) {
      double f[2];
      double x[2];
      for (int side = 0; side < 2; ++side) {
        Tensor moved = original.Clone();
        moved.data<double>()[i] += side == 0 ? kStep : -kStep;
        x[side] = moved.data<double>()[i];
        p.feeds[value->name] = moved;
        f[side] = Loss(p, nodes, evaluator);
      }
      differences.push_back((f[0] - f[1]) / (x[0] - x[1]));
    }
    p.feeds[value->name] = original;
  }
  return all;
}

void Compare(const Value* value, const Tensor& gradient,
             const std::vector<double>& differences) {
  ASSERT_EQ(gradient.shape(), *value->shape);
  ASSERT_EQ(gradient.dtype(), value->dtype);
  double scale = 1;
  for (double d : differences) scale = std::max(scale, std::fabs(d));
  for (size_t i = 0; i < differences.size(); ++i) {
    double g = gradient.data<double>()[i];
    ASSERT_TRUE(std::fabs(g - differences[i]) <= kDifferenceTolerance * scale)
        << "gradient of " << value->name << "[" << i << "]: rule " << g
        << ", difference " << differences[i];
  }
}

// Compares the backward graph for `which` of the wanted operands with
// differences.
void CheckSubset(const GradientCase& c, const std::vector<size_t>& which,
                 const std::map<std::string, std::vector<double>>& differences,
                 double loss) {
  auto evaluator = MakeCpuEvaluator();
  Problem p;
  Build(c, p);
  std::vector<Value*> wanted;
  for (size_t i : which) wanted.push_back(p.wanted[i]);
  UnrollRecurrent(p.graph);
  BackwardResult result = Differentiate(p.graph, p.loss, wanted);
  ExpandWithoutKernel(p.graph, *evaluator);
  ValueMap values = Fed(p.graph, p.feeds);
  std::vector<Node*> nodes;
  for (Node& node : p.graph.nodes()) nodes.push_back(&node);
  RunNodes(nodes, *evaluator, values);
  EXPECT_NEAR(DoubleAt(values.at(p.loss), 0), loss, 1e-9 * std::fabs(loss));
  for (Value* value : wanted) {
    ASSERT_TRUE(result.gradient.contains(value)) << value->name;
    Value* gradient = result.gradient[value];
    Compare(value,
            gradient->is_initializer() ? gradient->data : values.at(gradient),
            differences.at(value->name));
  }
}

}  // namespace

Operand X(const Shape& shape, double low, double high) {
  return {Tensor::Zeros(DType::kDouble, shape), true, low, high};
}

Operand XOf(const Shape& shape, const std::vector<double>& values) {
  return {Tensor::From(shape, values), true};
}

Operand Constant(Tensor data) { return {std::move(data), false}; }

Operand Ints(const std::vector<int64_t>& values) {
  return {Tensor::Ints(values), false};
}

Operand Ints(const Shape& shape, const std::vector<int64_t>& values) {
  return {Tensor::From(shape, values), false};
}

Operand Int(int64_t value) { return {Tensor::Scalar(value), false}; }

Operand Doubles(const Shape& shape, const std::vector<double>& values) {
  return {Tensor::From(shape, values), false};
}

Operand Bools(const Shape& shape, const std::vector<bool>& values) {
  Tensor t = Tensor::Allocate(DType::kBool, shape);
  for (size_t i = 0; i < values.size(); ++i) t.data<bool>()[i] = values[i];
  return {t, false};
}

Operand None() { return {}; }

Attributes Axis(int64_t axis, Attributes more) {
  more["axis"] = axis;
  return more;
}

void CheckGradient(const GradientCase& c) {
  auto evaluator = MakeCpuEvaluator();
  Problem p;
  Build(c, p);
  ExpandWithoutKernel(p.graph, *evaluator);
  auto differences = Differences(p, *evaluator);
  double loss = Loss(p, Ancestors(p.graph, p.loss), *evaluator);
  std::vector<size_t> all;
  for (size_t i = 0; i < p.wanted.size(); ++i) all.push_back(i);
  CheckSubset(c, all, differences, loss);
  for (size_t i = 0; p.wanted.size() > 1 && i < p.wanted.size(); ++i) {
    CheckSubset(c, {i}, differences, loss);
  }
}

std::string CaseName(const testing::TestParamInfo<GradientCase>& info) {
  return info.param.name;
}

BackwardResult Differentiate(Graph& graph, Value* loss,
                             const std::vector<Value*>& wanted) {
  return BuildBackward(graph, loss, wanted, *MakeEvaluator());
}

std::map<std::string, Tensor> RunGraph(Graph& graph, const TensorMap& feeds) {
  auto evaluator = MakeCpuEvaluator();
  ExpandWithoutKernel(graph, *evaluator);
  ValueMap values = Fed(graph, feeds);
  std::vector<Node*> nodes;
  for (Node& node : graph.nodes()) nodes.push_back(&node);
  RunNodes(nodes, *evaluator, values);
  std::map<std::string, Tensor> named;
  for (const auto& [value, data] : values) named[value->name] = data;
  return named;
}

}  // namespace onnx_fp8
