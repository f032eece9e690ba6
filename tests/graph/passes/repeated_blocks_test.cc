// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/repeated_blocks.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// A stream x of layers: x + relu(x w) v. `hidden`: the width of relu(x w) in
// each layer.
std::unique_ptr<Graph> Stream(const std::vector<int>& hidden) {
  std::string text = R"(graph "g" opset 24
input t: float[2,3]
param e: float[3,4]
param out: float[4,7]
)";
  std::string nodes = "x0: float[2,4] = MatMul(t, e)\n";
  for (size_t i = 0; i < hidden.size(); ++i) {
    const std::string n = std::to_string(i), next = std::to_string(i + 1);
    const std::string width = std::to_string(hidden[i]);
    text += "param w" + n + ": float[4," + width + "]\n";
    text += "param v" + n + ": float[" + width + ",4]\n";
    nodes += "h" + n + ": float[2," + width + "] = MatMul(x" + n + ", w" + n;
    nodes += ")\nr" + n + ": float[2," + width + "] = Relu(h" + n;
    nodes += ")\no" + n + ": float[2,4] = MatMul(r" + n + ", v" + n;
    nodes += ")\nx" + next + ": float[2,4] = Add(x" + n + ", o" + n + ")\n";
  }
  const std::string last = std::to_string(hidden.size());
  return ParseGraph(text + nodes + "y: float[2,7] = MatMul(x" + last +
                    ", out)\noutput y\n");
}

std::vector<RepeatedBlocks> RunsOf(Graph& graph) {
  std::vector<Node*> nodes;
  for (Node& node : graph.nodes()) nodes.push_back(&node);
  return FindRepeatedBlocks(nodes);
}

std::string NamesOf(const std::vector<Node*>& nodes) {
  std::string names;
  for (const Node* node : nodes) names += node->out(0)->name + " ";
  return names;
}

// The cuts lie where x alone crosses them.
TEST(RepeatedBlocks, LayersOfAStream) {
  auto graph = Stream({8, 8, 8});
  const auto runs = RunsOf(*graph);
  ASSERT_EQ(runs.size(), 1u);
  ASSERT_EQ(runs[0].blocks.size(), 3u);
  EXPECT_EQ(NamesOf(runs[0].blocks[0]), "h0 r0 o0 x1 ");
  EXPECT_EQ(NamesOf(runs[0].blocks[2]), "h2 r2 o2 x3 ");
  EXPECT_EQ(runs[0].ends.size(), 3u);
  for (const char* name : {"x1", "x2", "x3"}) {
    EXPECT_TRUE(runs[0].ends.contains(graph->Find(name)->producer)) << name;
  }
}

// As the encoder and the decoder of one model.
TEST(RepeatedBlocks, RunsOfOtherLayers) {
  auto graph = Stream({8, 8, 8, 6, 6});
  const auto runs = RunsOf(*graph);
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].blocks.size(), 3u);
  ASSERT_EQ(runs[1].blocks.size(), 2u);
  EXPECT_EQ(NamesOf(runs[1].blocks[0]), "h3 r3 o3 x4 ");
}

TEST(RepeatedBlocks, NoneWithoutRepetition) {
  EXPECT_TRUE(RunsOf(*Stream({8})).empty());
  EXPECT_TRUE(RunsOf(*Stream({8, 6, 5})).empty());
}

}  // namespace
}  // namespace onnx_fp8
