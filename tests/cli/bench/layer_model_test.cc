// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/layer_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "graph/onnx/onnx_io.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

std::string Ops(const Graph& graph) {
  std::string ops;
  for (const Node& node : graph.nodes()) ops += node.op + " ";
  return ops;
}

TEST(LayerModelTest, IsALayerOfThatSize) {
  TempDir dir;
  WriteLayerModel(Surroundings::kNone, {8, 16, 64}, dir / "m.onnx");
  auto graph = ReadModel(dir / "m.onnx");
  EXPECT_EQ(Ops(*graph), "Gemm ReduceSum ");
  EXPECT_EQ(*graph->Find(kLayerInput)->shape, (Shape{8, 16}));
  const Tensor& weight = graph->Find(kLayerWeight)->data;
  EXPECT_EQ(weight.shape(), (Shape{64, 16}));
  // As PyTorch initializes them: at most 1 / sqrt(K).
  const float* begin = weight.data<float>();
  auto [least, largest] = std::minmax_element(begin, begin + weight.size());
  EXPECT_LT(*least, -0.2f);
  EXPECT_GE(*least, -0.25f);
  EXPECT_GT(*largest, 0.2f);
  EXPECT_LE(*largest, 0.25f);
  ASSERT_EQ(graph->outputs.size(), 1u);
  EXPECT_EQ(graph->outputs[0]->name, kLayerLoss);
}

TEST(LayerModelTest, MayStandBetweenNormAndSigmoid) {
  TempDir dir;
  WriteLayerModel(Surroundings::kNormAndSigmoid, {4, 8, 8}, dir / "m.onnx");
  EXPECT_EQ(Ops(*ReadModel(dir / "m.onnx")),
            "LayerNormalization Gemm Sigmoid ReduceSum ");
}

}  // namespace
}  // namespace onnx_fp8
