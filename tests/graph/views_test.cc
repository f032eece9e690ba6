// SPDX-License-Identifier: Apache-2.0
#include "graph/views.h"

#include <gtest/gtest.h>

#include "graph/node_notes.h"

namespace onnx_fp8 {
namespace {

std::string PathOf(const std::string& name, const std::string& scopes = "") {
  Node node;
  node.name = name;
  if (!scopes.empty()) node.metadata["pkg.torch.onnx.name_scopes"] = scopes;
  return ModulePath(node);
}

TEST(ModulePath, ComesFromScopesOrElseFromTheName) {
  EXPECT_EQ(PathOf("n", "['', 'model', 'model.fc', 'linear']"), "model.fc");
  EXPECT_EQ(PathOf("/a/b/MatMul", "['', 'model', 'x']"), "model");
  EXPECT_EQ(PathOf("/a/b/MatMul", "['x']"), "");
  EXPECT_EQ(PathOf("/blocks.0/attn/MatMul"), "blocks.0.attn");
  EXPECT_EQ(PathOf("/MatMul"), "");
  EXPECT_EQ(PathOf("node_7"), "");
}

// Every Concat doubles the number of paths: a walk along all of them never
// ends.
TEST(WeightBehind, LooksAtSharedOperandsOnce) {
  Graph graph;
  Value* x = graph.AddInput("x", DType::kFloat, Shape{1});
  for (int i = 0; i < 64; ++i) {
    x = graph.AddNode("Concat", {x, x}, {"y" + std::to_string(i)})->out(0);
  }
  EXPECT_EQ(WeightBehind(x), nullptr);
  Value* w = graph.AddInitializer("w", Tensor::Scalar(1.0f));
  w->role = Role::kParameter;
  EXPECT_EQ(WeightBehind(graph.AddNode("Concat", {x, w}, {"z"})->out(0)), w);
}

TEST(WeightBehind, TakesTheFirst) {
  Graph graph;
  std::vector<Value*> parts;
  for (const char* name : {"a", "b"}) {
    Value* w = graph.AddInitializer(name, Tensor::Scalar(1.0f));
    w->role = Role::kFrozen;
    parts.push_back(
        graph.AddNode("Identity", {w}, {"view." + w->name})->out(0));
  }
  Value* y = graph.AddNode("Concat", parts, {"y"})->out(0);
  EXPECT_EQ(WeightBehind(y), graph.Find("a"));
}

}  // namespace
}  // namespace onnx_fp8
