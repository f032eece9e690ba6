// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/gather_layers.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// The layers of a chain of products by gathered weights. Each letter is a
// weight, equal letters have equal shapes: b (4,8) is followed by c (8,4), all
// other letters are (4,4) in groups of their own.
std::string LayersIn(const std::string& letters) {
  std::string text =
      "input x: float[4,4]\nparam b: float[2,8]\nparam c: float[4,4]\n"
      "param s: float[2,4]\n";
  std::string last = "x";
  for (size_t i = 0; i < letters.size(); ++i) {
    const std::string at = std::to_string(i);
    const char letter = letters[i];
    const bool wide = letter == 'b' || letter == 'c';
    const std::string weight = wide ? std::string(1, letter) : "s";
    const char* whole = letter == 'b'   ? "[4,8]"
                        : letter == 'c' ? "[8,4]"
                                        : "[4,4]";
    text += "g" + at + ": float" + whole + " = onnx_fp8.AllGather<group=\"" +
            (wide ? 'd' : letter) + "\", ranks=2>(" + weight + ")\n";
    text += "y" + at + ": float" + (letter == 'b' ? "[4,8]" : "[4,4]") +
            " = MatMul(" + last + ", g" + at + ")\n";
    last = "y" + at;
  }
  auto graph = ParseGraph(text + "output " + last + "\n");
  std::vector<Node*> nodes;
  for (Node& node : graph->nodes()) nodes.push_back(&node);
  std::string layers;
  size_t next = 0;
  for (const GatherLayer& layer :
       FindGatherLayers(nodes, std::numeric_limits<int64_t>::max())) {
    if (next > 0) layers += " ";
    layers += letters.substr(next, layer.gathers.size());
    next += layer.gathers.size();
  }
  return layers;
}

TEST(GatherLayers, BlocksThatRepeat) {
  EXPECT_EQ(LayersIn("ebcbcf"), "e bc bc f");
  // Equal weights of a layer are no layers.
  EXPECT_EQ(LayersIn("aaaabcaaaabc"), "aaaabc aaaabc");
  EXPECT_EQ(LayersIn("aaa"), "a a a");
}

TEST(GatherLayers, BlocksWithinBlocks) {
  EXPECT_EQ(LayersIn("ebcbcbcfebcbcbcf"), "e bc bc bc f e bc bc bc f");
  // Twice is not enough: a decoder has two attentions in a layer.
  EXPECT_EQ(LayersIn("bcbcebcbce"), "bcbce bcbce");
}

}  // namespace
}  // namespace onnx_fp8
