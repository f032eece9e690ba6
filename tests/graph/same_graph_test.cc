// SPDX-License-Identifier: Apache-2.0
#include "graph/same_graph.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr char kGraph[] = R"(graph "g" opset 24
input x: float[2,3]
param w: float[2,3]
state scale: float[] = {1.0}
const axes: int64[1] = {0}
a: float[2,3] = Add(x, w)
b: float[1,3] = ReduceSum<keepdims=1>(a, axes)
q: float8e4m3fn[1,3], s: float[] = onnx_fp8.QuantizeWith<q_max=448.0, to=17>(b, scale)
output q
output s
update scale = s
)";

std::string Replaced(const std::string& old, const std::string& by) {
  std::string text = kGraph;
  const size_t at = text.find(old);
  EXPECT_NE(at, text.npos) << old;
  return text.replace(at, old.size(), by);
}

bool IsSame(const std::string& text) {
  return SameGraph(*ParseGraph(kGraph), *ParseGraph(text));
}

TEST(SameGraph, HasTheSameText) { EXPECT_TRUE(IsSame(kGraph)); }

// Their numbers lie with the caller.
TEST(SameGraph, MayHaveOtherNumbersOfState) {
  EXPECT_TRUE(
      IsSame(Replaced("scale: float[] = {1.0}", "scale: float[] = {2.0}")));
}

TEST(SameGraph, SeesEachDifference) {
  const std::vector<std::pair<std::string, std::string>> differences = {
      {"opset 24", "opset 23"},
      {"param w", "frozen w"},
      {"param w", "input param w"},
      {"state scale", "const scale"},
      {"axes: int64[1] = {0}", "axes: int64[1] = {1}"},
      {"Add(x, w)", "Add(w, x)"},
      {"Add(x, w)", "Add(x, x)"},
      {"Add(x, w)", "Sub(x, w)"},
      {"= Add(", "= onnx_fp8.Add("},
      {"a: float[2,3]", "a: float[3,2]"},
      {"a: float[2,3]", "a: float as bfloat16[2,3]"},
      {"q: float8e4m3fn[1,3]", "q: float8e5m2[1,3]"},
      {", s: float[] =", ", s: float[], amax: float[] ="},
      {"keepdims=1", "keepdims=0"},
      {"<keepdims=1>", ""},
      {"q_max=448.0", "q_max=240.0"},
      {"output s\n", ""},
      {"output q\noutput s", "output s\noutput q"},
      {"update scale = s\n", ""},
      {"output q", "c: float[1,3] = Neg(b)\noutput q"}};
  for (const auto& [old, by] : differences) {
    EXPECT_FALSE(IsSame(Replaced(old, by))) << old << " -> " << by;
  }
}

TEST(SameGraph, SeesAnotherName) {
  auto graph = ParseGraph(kGraph);
  graph->Rename(graph->Find("q"), "codes");
  EXPECT_FALSE(SameGraph(*graph, *ParseGraph(kGraph)));
}

TEST(SameGraph, HasTheSameNumbersInAttributes) {
  auto with = [](float number) {
    auto graph = ParseGraph(kGraph);
    graph->nodes().front().attributes["value"] = Tensor::Scalar(number);
    return graph;
  };
  EXPECT_TRUE(SameGraph(*with(1), *with(1)));
  EXPECT_FALSE(SameGraph(*with(1), *with(2)));
}

}  // namespace
}  // namespace onnx_fp8
