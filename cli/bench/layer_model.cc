// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/layer_model.h"

#include <algorithm>
#include <cmath>

#include "cli/bench/random_tensor.h"
#include "graph/graph.h"
#include "graph/onnx/onnx_io.h"

namespace onnx_fp8 {
namespace {

// ONNX's LayerNormalization needs a scale.
Value* AddNorm(Graph& graph, Value* x) {
  Tensor ones = Tensor::Allocate(DType::kFloat, {x->dim(-1)});
  std::fill_n(ones.data<float>(), ones.size(), 1.0f);
  Value* scale = graph.AddInitializer("norm.scale", ones);
  return graph.AddNode("LayerNormalization", {x, scale}, {"norm"})->out(0);
}

}  // namespace

void WriteLayerModel(Surroundings surroundings, const ProductSize& size,
                     const std::string& path) {
  bool more = surroundings == Surroundings::kNormAndSigmoid;
  Graph graph;
  Value* x = graph.AddInput(kLayerInput, DType::kFloat, Shape{size.m, size.k});
  Value* weight = graph.AddInitializer(
      kLayerWeight, RandomTensor({size.n, size.k}, DType::kFloat, 1,
                                 1 / std::sqrt(static_cast<float>(size.k))));
  if (more) x = AddNorm(graph, x);
  Value* y =
      graph.AddNode("Gemm", {x, weight}, {"y"}, {{"transB", int64_t{1}}})
          ->out(0);
  if (more) y = graph.AddNode("Sigmoid", {y}, {"sigmoid"})->out(0);
  Value* loss =
      graph.AddNode("ReduceSum", {y}, {kLayerLoss}, {{"keepdims", int64_t{0}}})
          ->out(0);
  loss->dtype = DType::kFloat;
  loss->shape = Shape{};
  graph.outputs = {loss};
  WriteModel(graph, path, {.external_data = true});
}

SessionOptions LayerOptions(SessionOptions options, Surroundings surroundings,
                            const ProductSize& size, const std::string& path) {
  WriteLayerModel(surroundings, size, path);
  options.model = path;
  options.loss.kind = std::string("output:") + kLayerLoss;
  options.freeze = {"*"};
  options.train = {kLayerWeight};
  return options;
}

}  // namespace onnx_fp8
