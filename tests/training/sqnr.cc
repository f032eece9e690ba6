// SPDX-License-Identifier: Apache-2.0
#include "tests/training/sqnr.h"

#include <algorithm>
#include <cctype>
#include <cmath>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"

namespace onnx_fp8 {
namespace {

Tensor LinearWeight(int64_t n, int64_t k, uint64_t seed) {
  Tensor w = Tensor::Allocate(DType::kFloat, {n, k});
  float bound = 1 / std::sqrt(static_cast<float>(k));
  for (int64_t i = 0; i < w.size(); ++i) {
    w.data<float>()[i] =
        bound * (2 * RandomUniform(seed, static_cast<uint64_t>(i)) - 1);
  }
  return w;
}

// Followed by a trained shift of 0: layers without something to train before
// them have no dgrad in training, and thus no delayed scales for it.
Value* AddX(Builder& b, int64_t rows, int64_t width) {
  Value* x = b.graph().AddInput("x", DType::kFloat, Shape{rows, width});
  Value* shift =
      b.graph().AddInitializer("shift", Tensor::Zeros(DType::kFloat, {width}));
  return b.Add(x, shift);
}

Value* Linear(Builder& b, Value* x, Value* w) {
  return b.Op("MatMul", {x, b.Transpose(w, {1, 0})});
}

void Finish(Builder& b, Value* y, const std::string& path) {
  Graph& graph = b.graph();
  Value* g = graph.AddInput("g", DType::kFloat, *y->shape);
  Value* loss = b.Op("ReduceSum", {b.Mul(y, g)}, {{"keepdims", int64_t{0}}});
  graph.Rename(y, "y");
  graph.Rename(loss, "loss");
  graph.outputs = {y, loss};
  WriteModel(graph, path);
}

}  // namespace

double Sqnr(const Tensor& exact, const Tensor& rounded) {
  EXPECT_EQ(exact.shape(), rounded.shape());
  double signal = 0, noise = 0;
  for (int64_t i = 0; i < exact.size(); ++i) {
    double x = DoubleAt(exact, i), error = x - DoubleAt(rounded, i);
    signal += x * x;
    noise += error * error;
  }
  return 10 * std::log10(signal / noise);
}

void ExpectBetween(double value, double low, double high,
                   const std::string& what) {
  EXPECT_GE(value, low) << what;
  EXPECT_LE(value, high) << what;
}

std::string WriteLinear(const TempDir& dir, int64_t rows, const Tensor& w) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = AddX(b, rows, w.dim(1));
  Finish(b, Linear(b, x, graph.AddInitializer("w", w)), dir / "linear.onnx");
  return dir / "linear.onnx";
}

std::string WriteFeedForward(const TempDir& dir, int64_t rows, int64_t width,
                             int64_t hidden) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = AddX(b, rows, width);
  Value* w1 = graph.AddInitializer("w1", LinearWeight(hidden, width, 1));
  Value* w2 = graph.AddInitializer("w2", LinearWeight(width, hidden, 2));
  Value* w3 = graph.AddInitializer("w3", LinearWeight(hidden, width, 3));
  Value* gate = Linear(b, x, w1);
  Value* silu = b.Mul(gate, b.Op("Sigmoid", {gate}));
  Value* y = Linear(b, b.Mul(silu, Linear(b, x, w3)), w2);
  Finish(b, y, dir / "feed_forward.onnx");
  return dir / "feed_forward.onnx";
}

std::string RecipeTestName(std::string recipe) {
  std::ranges::replace_if(
      recipe, [](char c) { return !std::isalnum(c); }, '_');
  return recipe;
}

GradientResult RunStep(const std::string& model, const SqnrRun& run,
                       const TensorMap& feeds) {
  SessionOptions options;
  options.model = model;
  options.loss.kind = "output:loss";
  options.recipe = ParseRecipe(run.recipe);
  options.expand = run.expand;
  TempDir scales;
  if (options.recipe.Uses(Scaling::kStatic)) {
    SessionOptions other = options;
    other.recipe = ParseRecipe("delayed");
    auto delayed = TrainingSession::Create(other);
    for (const TensorMap& batch : run.earlier) delayed->Step(batch, 0);
    delayed->Save(scales.path());
    options.scales = scales.path();
  }
  auto session = TrainingSession::Create(options);
  if (options.recipe.Uses(Scaling::kDelayed)) {
    for (const TensorMap& batch : run.earlier) session->Step(batch, 0);
  }
  return session->Gradients(feeds, true);
}

StepSqnr CompareSteps(const GradientResult& exact,
                      const GradientResult& rounded) {
  StepSqnr sqnr;
  sqnr.y = Sqnr(exact.outputs.at("y"), rounded.outputs.at("y"));
  sqnr.dx =
      Sqnr(exact.input_gradients.at("x"), rounded.input_gradients.at("x"));
  for (const auto& [name, gradient] : exact.gradients) {
    if (name != "shift") {
      sqnr.dw[name] = Sqnr(gradient, rounded.gradients.at(name));
    }
  }
  return sqnr;
}

}  // namespace onnx_fp8
