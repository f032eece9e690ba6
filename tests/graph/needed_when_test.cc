// SPDX-License-Identifier: Apache-2.0
#include "graph/needed_when.h"

#include <gtest/gtest.h>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

// "a: c", "b: !c d" for the outputs of the graph's nodes.
std::string Text(const Graph& graph, const std::vector<std::string>& roots) {
  std::vector<const Value*> values;
  for (const std::string& name : roots) values.push_back(graph.Find(name));
  NeededMap needed = NeededWhen(graph, values);
  std::string text;
  for (const Node& node : graph.nodes()) {
    const Conditions& conditions = ConditionsOf(needed, &node);
    if (conditions.empty()) continue;
    text += node.out(0)->name + ":";
    for (const Condition& c : conditions) {
      text += (c.value ? " " : " !") + c.flag->name;
    }
    text += "\n";
  }
  return text;
}

TEST(NeededWhen, FollowsTheOperandsOfAChoice) {
  auto graph = ParseGraph(R"(
input c: bool[]
input x: float[2]
both: float[2] = Abs(x)
a: float[2] = Neg(both)
aa: float[2] = Neg(a)
b: float[2] = Exp(both)
y: float[2] = Where(c, aa, b)
z: float[2] = Neg(y)
output z
)");
  EXPECT_EQ(Text(*graph, {"z"}), "a: c\naa: c\nb: !c\n");
  // A value that something else reads matters always.
  EXPECT_EQ(Text(*graph, {"z", "a"}), "aa: c\nb: !c\n");
  EXPECT_EQ(Text(*graph, {"a"}), "");
}

TEST(NeededWhen, ConditionsOfInnerChoicesJoinThoseOfOuterOnes) {
  auto graph = ParseGraph(R"(
input c: bool[1]
input d: bool[]
input x: float[2]
a: float[2] = Neg(x)
e: float[2] = Exp(x)
inner: float[2] = Where(d, a, e)
other: float[2] = Abs(a)
y: float[2] = Where(c, inner, other)
output y
)");
  EXPECT_EQ(Text(*graph, {"y"}), "e: c !d\ninner: c\nother: !c\n");
}

// A mask of elements reads both operands; a constant flag is no condition.
TEST(NeededWhen, OnlyAFlagOfOneElementChooses) {
  auto graph = ParseGraph(R"(
input mask: bool[2]
const on: bool[] = {1}
input x: float[2]
a: float[2] = Neg(x)
b: float[2] = Abs(x)
y: float[2] = Where(mask, a, x)
z: float[2] = Where(on, b, y)
output z
)");
  EXPECT_EQ(Text(*graph, {"z"}), "");
}

TEST(NeededWhen, ChooseTakesTheOtherUnlessAllHold) {
  auto graph = ParseGraph(R"(
input c: bool[1]
input d: bool[]
input x: float[2]
input z: float[]
output x
)");
  Builder b(*graph, "to.");
  Conditions conditions = {{graph->Find("c"), true}, {graph->Find("d"), false}};
  graph->outputs = {Choose(b, conditions, graph->Find("x"), graph->Find("z"))};
  Verify(*graph);
  std::string text = Print(*graph);
  EXPECT_NE(text.find("= Where(to.Reshape, x, z)"), std::string::npos) << text;
  EXPECT_NE(text.find("= Where(d, z, to.Where)"), std::string::npos) << text;
}

}  // namespace
}  // namespace onnx_fp8
