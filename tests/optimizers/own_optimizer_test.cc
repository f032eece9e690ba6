// SPDX-License-Identifier: Apache-2.0
//
// Optimizers in files, beside loops over their formulas.
#include "optimizers/own_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "optimizers/optimizer.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

// Signed momentum: m' = m / 2 + grad, count' = count + step, param' = param -
// lr · sign(m') · count'. `first`: the first value of m; none: 0.
std::string WriteRule(const TempDir& dir, const Tensor* first = nullptr) {
  Graph graph;
  graph.opset = 21;
  Value* param = graph.AddInput("param", DType::kFloat, Shape{-1, -1});
  Value* grad = graph.AddInput("grad", DType::kFloat, Shape{-1, -1});
  Value* lr = graph.AddInput("lr", DType::kFloat, Shape{});
  Value* step = graph.AddInput("step", DType::kInt64, Shape{});
  Value* m = nullptr;
  if (first) {
    m = graph.AddInitializer("m", *first);
    m->is_input = true;
    graph.inputs.push_back(m);
  } else {
    m = graph.AddInput("m", DType::kFloat, Shape{-1, -1});
  }
  Value* count = graph.AddInput("count", DType::kFloat, Shape{});
  Builder b(graph);
  Value* next = b.Add(b.Mul(m, b.Scalar(0.5, m)), grad);
  Value* counted = b.Add(count, b.Cast(step, DType::kFloat));
  Value* move = b.Mul(b.Mul(b.Op("Sign", {next}), lr), counted);
  graph.outputs = {b.Sub(param, move), next, counted};
  WriteModel(graph, dir / "rule.onnx");
  return dir / "rule.onnx";
}

class TrainedByFile {
 public:
  TrainedByFile(const OptimizerSpec& spec, const Tensor& start)
      : graph_(std::make_shared<Graph>()), cpu_(MakeCpuProvider()) {
    graph_->opset = 24;
    Value* w = graph_->AddInitializer("w", start);
    w->role = Role::kParameter;
    Value* dw = graph_->AddInput("dw", start.dtype(), start.shape());
    Value* good = graph_->AddInput("good", DType::kBool, Shape{});
    AppendOptimizer(*graph_, {{w, dw, "w"}}, spec, {}, nullptr, {}, {}, good);
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
  }

  void Step(const std::vector<float>& gradient, bool good = true) {
    executor_->Run({{"dw", Tensor::From<float>({1, 2}, gradient)},
                    {"good", Tensor::Scalar(good)},
                    {"lr", Tensor::Scalar(0.25f)}},
                   state_);
  }

  std::vector<float> At(const std::string& name) const {
    const Tensor& t = state_.at(name);
    return {t.data<float>(), t.data<float>() + t.size()};
  }

 private:
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_;
  std::unique_ptr<Executor> executor_;
  TensorMap state_;
};

const Tensor& StartOfW() {
  static const Tensor start = Tensor::From<float>({1, 2}, {8, 16});
  return start;
}

TEST(OptimizerFile, UpdatesByItsFormulas) {
  TempDir dir;
  TrainedByFile w({.kind = WriteRule(dir)}, StartOfW());
  w.Step({2, -4});
  EXPECT_EQ(w.At("w"), (std::vector<float>{7.75f, 16.25f}));
  EXPECT_EQ(w.At("w.m"), (std::vector<float>{2, -4}));
  EXPECT_EQ(w.At("w.count"), (std::vector<float>{1}));
  w.Step({-4, -4});  // the second step: count is 3
  EXPECT_EQ(w.At("w.m"), (std::vector<float>{-3, -6}));
  EXPECT_EQ(w.At("w"), (std::vector<float>{8.5f, 17}));
  w.Step({1, 1}, false);
  w.Step({1, NAN});
  EXPECT_EQ(w.At("w.m"), (std::vector<float>{-3, -6}));
  EXPECT_EQ(w.At("w"), (std::vector<float>{8.5f, 17}));
  EXPECT_EQ(w.At("w.count"), (std::vector<float>{3}));
}

TEST(OptimizerFile, StatesStartAtTheirInitializers) {
  TempDir dir;
  const Tensor one = Tensor::From<float>({1, 1}, {4});
  OptimizerSpec spec{.kind = WriteRule(dir, &one)};
  TrainedByFile w(spec, StartOfW());
  w.Step({0, -2});
  EXPECT_EQ(w.At("w.m"), (std::vector<float>{2, 0}));
}

TEST(OptimizerFile, GroupsScaleTheRate) {
  TempDir dir;
  OptimizerSpec spec{.kind = WriteRule(dir)};
  spec.groups = {{.pattern = "w", .lr_scale = 4}};
  TrainedByFile w(spec, StartOfW());
  w.Step({2, -4});
  EXPECT_EQ(w.At("w"), (std::vector<float>{7, 17}));
}

TEST(OptimizerFile, KnowsItsStates) {
  TempDir dir;
  const std::string path = WriteRule(dir);
  EXPECT_TRUE(IsOptimizerFile(path));
  EXPECT_FALSE(IsOptimizerFile("adamw"));
  EXPECT_EQ(MomentsOf({.kind = path}),
            (std::vector<std::string>{"m", "count"}));
  EXPECT_EQ(WeightDecayOf({.kind = path}), 0);
  EXPECT_TRUE(ReadsRate(*ReadOptimizerFile(path)));
}

// Writes a rule from `inputs` to their sum, as often as there are outputs.
std::string Refused(const TempDir& dir, const std::vector<std::string>& inputs,
                    size_t outputs, const char* op = "Add") {
  Graph graph;
  graph.opset = 21;
  for (const std::string& name : inputs) {
    graph.AddInput(name, DType::kFloat, Shape{-1, -1});
  }
  Builder b(graph);
  for (size_t i = 0; i < outputs; ++i) {
    Value* x = graph.inputs[0];
    graph.outputs.push_back(b.Op(op, {x, graph.inputs.back()}));
  }
  WriteModel(graph, dir / "wrong.onnx");
  try {
    TrainedByFile({.kind = dir / "wrong.onnx"}, StartOfW());
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(OptimizerFile, SaysWhatIsWrong) {
  TempDir dir;
  auto expect = [](const std::string& got, const std::string& text) {
    EXPECT_NE(got.find(text), std::string::npos) << got;
  };
  expect(Refused(dir, {"param", "g"}, 1),
         "wrong.onnx] expected an input grad, got param, g");
  expect(Refused(dir, {"param", "grad", "m"}, 1),
         "wrong.onnx] expected 2 outputs, the new parameter and the new values "
         "of m, got 1");
  for (const char* state : {"a.b", "ema", "correction"}) {
    expect(
        Refused(dir, {"param", "grad", state}, 2),
        Concat("and not ema or correction, which a run may keep, got ", state));
  }
  // A product of 1 by 2 with 1 by 2.
  expect(Refused(dir, {"param", "grad"}, 1, "MatMul"),
         "for the parameter w, float[1,2]: the node ");
  EXPECT_FALSE(ReadsRate(*ReadOptimizerFile(dir / "wrong.onnx")));
  OptimizerSpec spec{.kind = WriteRule(dir)};
  spec.weight_decay = 0.1;
  EXPECT_THROW(CheckOptimizer(spec), Error);
  spec.weight_decay.reset();
  spec.moments = "bfloat16";
  EXPECT_THROW(CheckOptimizer(spec), Error);
  const std::string kind = spec.kind;
  EXPECT_NO_THROW(CheckOptimizer({.kind = kind}));
  EXPECT_THROW(CheckOptimizer({.kind = kind, .beta1 = 0.8}), Error);
  EXPECT_THROW(CheckOptimizer({.kind = kind, .eps = 1e-6}), Error);
  EXPECT_THROW(CheckOptimizer({.kind = kind, .decay = kDecayOfLayers}), Error);
  EXPECT_THROW(CheckOptimizer({.kind = kind, .momentum = 0.9}), Error);
  EXPECT_THROW(ReadOptimizerFile(dir / "none.onnx"), Error);
}

}  // namespace
}  // namespace onnx_fp8
