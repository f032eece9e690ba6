// SPDX-License-Identifier: Apache-2.0
#include "tests/training/small_model.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/random.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"

namespace onnx_fp8 {

Tensor Random(const Shape& shape, uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, shape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = 2 * RandomUniform(seed, static_cast<uint64_t>(i)) - 1;
  }
  return t;
}

TensorMap Batch(uint64_t seed, int64_t size) {
  Tensor labels = Tensor::Allocate(DType::kInt64, {size});
  for (int64_t i = 0; i < size; ++i) {
    labels.data<int64_t>()[i] = static_cast<int64_t>(
        RandomBelow(seed + 1000, static_cast<uint64_t>(i), kClasses));
  }
  return {{"x", Random({size, kIn}, seed)}, {"labels", labels}};
}

std::string WriteMlp(const TempDir& dir, bool stochastic, float dropped) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  auto weight = [&](const char* name, const Shape& shape, uint64_t seed) {
    return graph.AddInitializer(name, Random(shape, seed));
  };
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  Value* h = b.Op("MatMul", {x, weight("fc.weight", {kIn, kHidden}, 1)});
  if (stochastic) {
    Tensor ones = Tensor::Allocate(DType::kFloat, {kHidden});
    for (int64_t i = 0; i < kHidden; ++i) ones.data<float>()[i] = 1;
    Value* var = graph.AddInitializer("bn.running_var", ones);
    Value* mean = graph.AddInitializer("bn.running_mean",
                                       Tensor::Zeros(DType::kFloat, {kHidden}));
    h = b.Ops("BatchNormalization",
              {h, weight("bn.weight", {kHidden}, 2),
               weight("bn.bias", {kHidden}, 3), mean, var},
              3, {{"training_mode", int64_t{1}}})[0];
    Value* ratio = b.Constant(Tensor::Scalar(dropped));
    h = b.Op("Dropout", {h, ratio, b.Constant(Tensor::Scalar(true))});
  }
  h = b.Op("Relu", {h});
  Value* y = b.Op("MatMul", {h, weight("out.weight", {kHidden, kClasses}, 4)});
  graph.outputs = {y};
  std::string path = dir / "mlp.onnx";
  WriteModel(graph, path);
  return path;
}

SessionOptions Options(const std::string& model, const std::string& recipe) {
  SessionOptions options;
  options.model = model;
  options.loss.kind = "cross_entropy";
  options.recipe = ParseRecipe(recipe);
  return options;
}

TensorMap Weights(TrainingSession& session, const TempDir& dir) {
  session.ExportOnnx(dir / "trained.onnx");
  auto graph = ReadModel(dir / "trained.onnx");
  TensorMap copy;
  for (const Value* value : graph->Initializers()) {
    if (value->name.ends_with(".weight") || value->name.starts_with("bn.")) {
      copy[value->name] = value->data.Clone();
    }
  }
  EXPECT_GE(copy.size(), 2u);
  return copy;
}

void ExpectSame(const TensorMap& a, const TensorMap& b) {
  ASSERT_EQ(a.size(), b.size());
  for (const auto& [name, tensor] : a) {
    const Tensor& other = b.at(name);
    ASSERT_EQ(tensor.bytes(), other.bytes()) << name;
    EXPECT_EQ(std::memcmp(tensor.raw(), other.raw(), tensor.bytes()), 0)
        << name;
  }
}

bool Same(const TensorMap& a, const TensorMap& b) {
  for (const auto& [name, tensor] : a) {
    const void* other = b.at(name).raw();
    if (std::memcmp(tensor.raw(), other, tensor.bytes()) != 0) return false;
  }
  return true;
}

}  // namespace onnx_fp8
