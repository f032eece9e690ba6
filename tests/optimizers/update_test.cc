// SPDX-License-Identifier: Apache-2.0
//
// Tests the update kernels where optimizer_test.cc does not: long tensors,
// results in place of operands, operands that do not fit.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/check.h"
#include "base/parallel.h"
#include "base/random.h"
#include "graph/builder.h"
#include "graph/passes/expand.h"
#include "providers/cpu/cpu_provider.h"

namespace onnx_fp8 {
namespace {

// Longer than a task, and no multiple of a vector.
constexpr int64_t kLong = 100'003;

Tensor Random(uint64_t seed, Shape shape) {
  Tensor t = Tensor::Allocate(DType::kFloat, std::move(shape));
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] =
        RandomUniform(seed, static_cast<uint64_t>(i)) - (seed == 3 ? 0 : 0.5f);
  }
  return t;
}

struct Op {
  const char* name;
  size_t moments;
  bool has_step;
  Attributes attributes;
};

std::vector<Op> AllOps() {
  Attributes sgd = {{"weight_decay", 0.25f}, {"lr_scale", 0.5f}};
  Attributes momentum = sgd, adam = sgd;
  momentum["momentum"] = 0.75f;
  momentum["nesterov"] = int64_t{1};
  adam["one_minus_beta1"] = 0.25f;
  adam["one_minus_beta2"] = 0.125f;
  adam["eps"] = 0.0625f;
  return {{"SGD", 0, false, sgd},
          {"SGDMomentum", 1, false, momentum},
          {"Adam", 2, true, adam},
          {"AdamW", 2, true, adam}};
}

struct Built {
  Graph graph;
  Node* node;
  std::vector<Tensor> inputs;
};

void Build(const Op& op, const Shape& shape, bool ok, Built* built) {
  auto& inputs = built->inputs;
  for (uint64_t i = 0; i < 2 + op.moments; ++i) {
    inputs.push_back(Random(i, shape));
  }
  if (op.has_step) inputs.push_back(Tensor::Scalar(int64_t{3}));
  inputs.push_back(Tensor::Scalar(0.5f));   // lr
  inputs.push_back(Tensor::Scalar(0.75f));  // grad_scale
  inputs.push_back(Tensor::Scalar(ok));
  std::vector<Value*> values;
  for (const Tensor& t : inputs) {
    values.push_back(built->graph.AddInput("in" + std::to_string(values.size()),
                                           t.dtype(), t.shape()));
  }
  Builder b(built->graph);
  built->node =
      b.Ops(op.name, values, 1 + op.moments, op.attributes, kDomain)[0]
          ->producer;
}

// Parameter i after the step, from the formulas.
double Expected(const Op& op, const std::vector<Tensor>& in, int64_t i) {
  auto at = [&](size_t k) { return DoubleAt(in[k], i); };
  const double rate = 0.5 * 0.5, decay = 0.25, p = at(0);
  double g = at(1) * 0.75;
  if (std::string(op.name) != "AdamW") g += decay * p;
  if (op.moments == 0) return p - rate * g;
  if (op.moments == 1) {
    double b = 0.75 * at(2) + g;
    return p - rate * (g + 0.75 * b);
  }
  double m = 0.75 * at(2) + 0.25 * g;
  double v = 0.875 * at(3) + 0.125 * g * g;
  double m_hat = m / (1 - std::pow(0.75, 3));
  double v_hat = v / (1 - std::pow(0.875, 3));
  double start = std::string(op.name) == "AdamW" ? p * (1 - rate * decay) : p;
  return start - rate * m_hat / (std::sqrt(v_hat) + 0.0625);
}

TEST(UpdateKernels, LongTensors) {
  for (const Op& op : AllOps()) {
    Built built;
    Build(op, {kLong}, true, &built);
    auto out = MakeCpuEvaluator()->Evaluate(*built.node, built.inputs);
    for (int64_t i = 0; i < kLong; ++i) {
      ASSERT_NEAR(DoubleAt(out[0], i), Expected(op, built.inputs, i), 1e-6)
          << op.name << " " << i;
    }
  }
}

TEST(UpdateKernels, InPlaceAndAnyThreadCountGiveTheSameBits) {
  for (bool ok : {true, false}) {
    for (const Op& op : AllOps()) {
      Built built;
      Build(op, {kLong}, ok, &built);
      auto apart = MakeCpuEvaluator()->Evaluate(*built.node, built.inputs);
      const KernelEntry* entry = CpuKernels().Find(kDomain, op.name);
      std::vector<Tensor> inputs, outputs(1 + op.moments);
      for (const Tensor& t : built.inputs) inputs.push_back(t.Clone());
      for (auto [in, out] : entry->traits.in_place) {
        // Only moments that are codes have scales.
        if (static_cast<size_t>(out) >= outputs.size()) continue;
        outputs[static_cast<size_t>(out)] = inputs[static_cast<size_t>(in)];
      }
      for (const Tensor& t : outputs) EXPECT_TRUE(t.defined());
      int threads = NumThreads();
      SetNumThreads(3);
      KernelContext context(*built.node, inputs, outputs);
      entry->kernel(context);
      SetNumThreads(threads);
      for (size_t i = 0; i < outputs.size(); ++i) {
        EXPECT_TRUE(Identical(outputs[i], apart[i])) << op.name << " " << i;
      }
      EXPECT_EQ(Identical(apart[0], built.inputs[0]), !ok);
    }
  }
}

// The op's body, node by node.
std::vector<Tensor> RunBody(const Op& op, bool ok, const Built& kernel) {
  Built built;
  Build(op, kernel.inputs[0].shape(), ok, &built);
  std::vector<Value*> results = built.node->outputs();
  ExpandNode(built.graph, *built.node);
  std::map<const Value*, Tensor> values;
  for (size_t i = 0; i < kernel.inputs.size(); ++i) {
    values[built.graph.inputs[i]] = kernel.inputs[i];
  }
  auto evaluator = MakeCpuEvaluator();
  for (const Node& node : built.graph.nodes()) {
    EXPECT_NE(node.domain, kDomain);
    std::vector<Tensor> inputs;
    for (const Value* value : node.inputs()) {
      inputs.push_back(value->is_initializer() ? value->data
                                               : values.at(value));
    }
    std::vector<Tensor> outputs = evaluator->Evaluate(node, inputs);
    for (size_t i = 0; i < outputs.size(); ++i) {
      values[node.out(i)] = outputs[i];
    }
  }
  std::vector<Tensor> out;
  for (const Value* value : results) out.push_back(values.at(value));
  return out;
}

TEST(UpdateKernels, EqualTheirBodies) {
  for (bool ok : {true, false}) {
    for (const Op& op : AllOps()) {
      Built built;
      Build(op, {7, 11}, ok, &built);
      auto kernel = MakeCpuEvaluator()->Evaluate(*built.node, built.inputs);
      auto body = RunBody(op, ok, built);
      ASSERT_EQ(body.size(), kernel.size());
      for (size_t i = 0; i < body.size(); ++i) {
        EXPECT_TRUE(Identical(body[i], kernel[i])) << op.name << " " << i;
      }
    }
  }
}

TEST(UpdateKernels, EmptyAndScalarParameters) {
  for (const Op& op : AllOps()) {
    for (Shape shape : {Shape{}, Shape{0, 3}}) {
      Built built;
      Build(op, shape, true, &built);
      auto out = MakeCpuEvaluator()->Evaluate(*built.node, built.inputs);
      EXPECT_EQ(out[0].shape(), shape);
    }
  }
}

TEST(UpdateKernels, RefuseOperandsThatDoNotFit) {
  for (const Op& op : AllOps()) {
    Built built;
    Build(op, {4}, true, &built);
    auto evaluator = MakeCpuEvaluator();
    for (size_t i = 0; i < built.inputs.size(); ++i) {
      for (Tensor wrong :
           {Tensor::Zeros(DType::kFloat, {5}), Tensor::Zeros(DType::kInt8, {4}),
            Tensor::Zeros(DType::kInt8, {}), Tensor()}) {
        std::vector<Tensor> inputs = built.inputs;
        inputs[i] = wrong;
        EXPECT_THROW(evaluator->Evaluate(*built.node, inputs), Error)
            << op.name << " input " << i;
      }
    }
    std::vector<Tensor> short_list(built.inputs.begin(),
                                   built.inputs.end() - 1);
    EXPECT_THROW(evaluator->Evaluate(*built.node, short_list), Error);
  }
}

TEST(UpdateSchemas, RefuseOperandsThatDoNotFit) {
  Graph graph;
  Value* w = graph.AddInput("w", DType::kFloat, Shape{2});
  Value* d = graph.AddInput("d", DType::kFloat, Shape{3});
  Value* i = graph.AddInput("i", DType::kInt64, Shape{2});
  Value* s = graph.AddInput("s", DType::kFloat, Shape{});
  Value* ok = graph.AddInput("ok", DType::kBool, Shape{});
  Builder b(graph);
  Attributes a = {{"weight_decay", 0.0f}, {"lr_scale", 1.0f}};
  EXPECT_NO_THROW(b.Ours("SGD", {w, w, s, s, ok}, a));
  EXPECT_THROW(b.Ours("SGD", {w, d, s, s, ok}, a), Error);
  EXPECT_THROW(b.Ours("SGD", {w, i, s, s, ok}, a), Error);
  EXPECT_THROW(b.Ours("SGD", {i, i, s, s, ok}, a), Error);
  EXPECT_THROW(b.Ours("SGD", {w, w, w, s, ok}, a), Error);
  EXPECT_THROW(b.Ours("SGD", {w, w, s, s, s}, a), Error);
  EXPECT_THROW(b.Ours("SGD", {w, w, s, s}, a), Error);
  EXPECT_THROW(b.Ours("SGD", {w, w, s, s, nullptr}, a), Error);
}

}  // namespace
}  // namespace onnx_fp8
