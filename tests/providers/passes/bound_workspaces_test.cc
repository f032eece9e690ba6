// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/bound_workspaces.h"

#include <gtest/gtest.h>

#include "providers/most_workspace.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

TEST(BoundWorkspaces, OfGradientsOfAttentionOnly) {
  auto graph = ParseGraph(R"(graph "g" opset 24
input dy: float[1,4,8]
input q: float[1,4,8]
input k: float[1,4,8]
input v: float[1,4,8]
input y: float[1,4,8]
input lse: float[1,2,4]
dq: float[1,4,8], dk: float[1,4,8], dv: float[1,4,8] = onnx_fp8.AttentionGrad<heads=2, kv_heads=2>(dy, q, k, v, y, lse)
n: float[1,4,8] = Neg(dq)
output n
output dk
output dv
)");
  const Node& gradient = *graph->Find("dq")->producer;
  EXPECT_EQ(MostWorkspaceOf(gradient, 5000), 5000u);
  BoundWorkspaces(*graph, 1000);
  EXPECT_EQ(MostWorkspaceOf(gradient, 5000), 1000u);
  EXPECT_EQ(MostWorkspaceOf(gradient, 500), 500u);
  EXPECT_EQ(MostWorkspaceOf(*graph->Find("n")->producer, 5000), 5000u);
}

TEST(BoundWorkspaces, NotesOfAFileMayBeNoNumbers) {
  Graph graph;
  Node& node = *graph.AddNode("Neg", {}, {"y"});
  for (const char* note :
       {"", "many", "10 bytes", "-1", "99999999999999999999999999"}) {
    node.metadata[kMostWorkspace] = note;
    EXPECT_EQ(MostWorkspaceOf(node, 5000), 5000u) << note;
  }
}

}  // namespace
}  // namespace onnx_fp8
