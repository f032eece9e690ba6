// SPDX-License-Identifier: Apache-2.0
#include "graph/weight_uses.h"

#include <gtest/gtest.h>

#include <memory>

#include "graph/builder.h"

namespace onnx_fp8 {
namespace {

// A graph with data "x" (2, 4) and "ids" (2).
class WeightUsesTest : public testing::Test {
 protected:
  WeightUsesTest() : b_(graph_) {
    graph_.opset = 24;
    x_ = graph_.AddInput("x", DType::kFloat, Shape{2, 4});
    ids_ = graph_.AddInput("ids", DType::kInt64, Shape{2});
  }

  Value* Weight(const std::string& name, const Shape& shape) {
    Value* value =
        graph_.AddInitializer(name, Tensor::Zeros(DType::kFloat, shape));
    value->role = Role::kParameter;
    return value;
  }

  WeightUse UseOf(const std::string& name) const {
    return WeightUses(graph_).at(name);
  }

  Graph graph_;
  Builder b_;
  Value *x_, *ids_;
};

// The number of axes says nothing.
TEST_F(WeightUsesTest, NodesTellThem) {
  b_.Op("Gemm", {x_, Weight("fc", {4, 4}), Weight("fc.bias", {1, 4})});
  b_.Op("MatMul", {x_, Weight("vector", {4})});
  b_.Op("LayerNormalization",
        {x_, Weight("norm", {2, 4}), Weight("norm.bias", {2, 4})},
        {{"axis", int64_t{0}}});
  b_.Op("Gather", {Weight("table", {9, 4}), ids_});
  b_.Op("Add", {x_, Weight("shift", {2, 4})});
  b_.Op("Mul", {x_, Weight("scale", {2, 4})});
  b_.Op("Concat", {x_, Weight("token", {1, 4})}, {{"axis", int64_t{0}}});
  Weight("idle", {4, 4});
  EXPECT_EQ(UseOf("fc"), WeightUse::kLayer);
  EXPECT_EQ(UseOf("fc.bias"), WeightUse::kBias);
  EXPECT_EQ(UseOf("vector"), WeightUse::kLayer);
  EXPECT_EQ(UseOf("norm"), WeightUse::kNorm);
  EXPECT_EQ(UseOf("norm.bias"), WeightUse::kNorm);
  EXPECT_EQ(UseOf("table"), WeightUse::kTable);
  EXPECT_EQ(UseOf("shift"), WeightUse::kBias);
  EXPECT_EQ(UseOf("scale"), WeightUse::kScale);
  EXPECT_EQ(UseOf("token"), WeightUse::kOther);
  EXPECT_EQ(UseOf("idle"), WeightUse::kNone);
}

TEST_F(WeightUsesTest, BiasesOfRecurrentLayersAndConvolutions) {
  Value* steps = b_.Reshape(x_, {2, 1, 4});
  b_.Ops("LSTM",
         {steps, Weight("w", {1, 12, 4}), Weight("r", {1, 12, 3}),
          Weight("b", {1, 24})},
         1, {{"hidden_size", int64_t{3}}});
  b_.Op("Conv", {steps, Weight("filter", {1, 1, 2}), Weight("added", {1})});
  EXPECT_EQ(UseOf("w"), WeightUse::kLayer);
  EXPECT_EQ(UseOf("r"), WeightUse::kLayer);
  EXPECT_EQ(UseOf("b"), WeightUse::kBias);
  EXPECT_EQ(UseOf("filter"), WeightUse::kLayer);
  EXPECT_EQ(UseOf("added"), WeightUse::kBias);
}

// A norm of weights, then a Transpose.
TEST_F(WeightUsesTest, ValuesOfWeightsAlonePassThemOn) {
  Value* direction = Weight("direction", {4, 4});
  Value* made = b_.Mul(b_.Op("Sigmoid", {direction}), Weight("size", {4, 1}));
  b_.Op("MatMul", {x_, b_.Transpose(made, {1, 0})});
  EXPECT_EQ(UseOf("direction"), WeightUse::kLayer);
  EXPECT_EQ(UseOf("size"), WeightUse::kLayer);
}

// Sizes of data make no data of a weight.
TEST_F(WeightUsesTest, SizesAreNoData) {
  Value* wide =
      b_.Op("Expand", {Weight("token", {1, 4}), b_.Op("Shape", {x_})});
  b_.Op("MatMul", {wide, Weight("fc", {4, 4})});
  b_.Add(x_, wide);
  EXPECT_EQ(UseOf("token"), WeightUse::kBias);
}

TEST_F(WeightUsesTest, ATiedTableIsALayers) {
  Value* table = Weight("table", {4, 4});
  b_.Op("Gather", {table, ids_});
  b_.Op("MatMul", {x_, b_.Transpose(table, {1, 0})});
  EXPECT_EQ(UseOf("table"), WeightUse::kLayer);
}

// Positions that a file holds are rows of a table; one part of a weight that
// holds several is a weight.
TEST_F(WeightUsesTest, RowsAndPartsOfATable) {
  Value* rows = b_.Op("Gather", {Weight("positions", {9, 4}), b_.Ints({0, 1})});
  b_.Add(x_, rows);
  Value* part = b_.Op("Gather", {Weight("qkv", {3, 4, 4}), b_.Int(1)});
  b_.Op("MatMul", {x_, part});
  EXPECT_EQ(UseOf("positions"), WeightUse::kTable);
  EXPECT_EQ(UseOf("qkv"), WeightUse::kLayer);
}

TEST_F(WeightUsesTest, BodiesReadWeightsOfTheGraphAround) {
  Weight("inner", {4, 4});
  Weight("inner.bias", {2, 4});
  Value* flag = graph_.AddInput("flag", DType::kBool, Shape{});
  const auto body = [&](bool weighted) {
    auto graph = std::make_shared<Graph>();
    Value* y = graph->AddCaptured("x");
    if (weighted) {
      y = graph->AddNode("MatMul", {y, graph->AddCaptured("inner")}, {"p"})
              ->out(0);
      y = graph->AddNode("Add", {y, graph->AddCaptured("inner.bias")}, {"s"})
              ->out(0);
    } else {
      y = graph->AddNode("Relu", {y}, {"r"})->out(0);
    }
    graph->outputs = {y};
    return graph;
  };
  graph_.AddNode("If", {flag}, {"y"},
                 {{"then_branch", body(true)}, {"else_branch", body(false)}});
  EXPECT_EQ(UseOf("inner"), WeightUse::kLayer);
  EXPECT_EQ(UseOf("inner.bias"), WeightUse::kBias);
}

TEST_F(WeightUsesTest, FrozenWeightsAreLeftOut) {
  Value* frozen = Weight("frozen", {4, 4});
  frozen->role = Role::kFrozen;
  b_.Op("MatMul", {x_, frozen});
  EXPECT_FALSE(WeightUses(graph_).contains("frozen"));
}

}  // namespace
}  // namespace onnx_fp8
