// SPDX-License-Identifier: Apache-2.0
#include "graph/views.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace onnx_fp8
