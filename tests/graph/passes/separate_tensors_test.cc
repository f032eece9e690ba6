// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/separate_tensors.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

using Names = std::set<std::string>;

Names HeldBy(const Graph& graph) {
  Names names;
  for (const Value* value : graph.Initializers()) names.insert(value->name);
  return names;
}

constexpr char kNorms[] = R"(
input x: float[2,3,4]
const a.weight: float[3] = {1,1,1}
const a.bias: float[3] = {0,0,0}
a.running_mean: float[3] = Identity(a.bias)
a.running_var: float[3] = Identity(a.weight)
b.weight: float[3] = Identity(a.weight)
y: float[2,3,4] = BatchNormalization(x, a.weight, a.bias, a.running_mean, a.running_var)
z: float[2,3,4] = BatchNormalization(y, b.weight, a.bias, a.running_mean, a.running_var)
output z
)";

TEST(SeparateTensors, OfANewModel) {
  auto graph = ParseGraph(kNorms);
  auto notes = SeparateTensors(*graph, false);
  EXPECT_EQ(notes.size(), 1u);
  const Node* first = graph->Find("y")->producer;
  const Node* second = graph->Find("z")->producer;
  Names tensors;
  for (const Node* node : {first, second}) {
    for (size_t i = 1; i <= 4; ++i) {
      ASSERT_TRUE(node->in(i)->is_initializer()) << i;
      tensors.insert(node->in(i)->name);
    }
  }
  // Two modules: all but the bias that the file reads twice are different.
  EXPECT_EQ(tensors.size(), 7u);
  EXPECT_TRUE(tensors.contains("a.running_mean"));
  EXPECT_TRUE(tensors.contains("a.running_var"));
  EXPECT_TRUE(tensors.contains("b.weight"));
  EXPECT_EQ(first->in(1)->name, "a.weight");
}

// A module that is called twice has one mean and one variance.
TEST(SeparateTensors, OneModuleCalledTwice) {
  auto graph = ParseGraph(R"(
input x: float[2,3,4]
const w: float[3] = {1,1,1}
const b: float[3] = {0,0,0}
const m: float[3] = {0,0,0}
const v: float[3] = {1,1,1}
y: float[2,3,4] = BatchNormalization(x, w, b, m, v)
z: float[2,3,4] = BatchNormalization(y, w, b, m, v)
output z
)");
  EXPECT_TRUE(SeparateTensors(*graph, false).empty());
  EXPECT_EQ(HeldBy(*graph), (Names{"w", "b", "m", "v"}));
}

TEST(SeparateTensors, AStatisticWithoutIdentity) {
  auto graph = ParseGraph(R"(
input x: float[2,3,4]
const one: float[3] = {1,1,1}
const zero: float[3] = {0,0,0}
y: float[2,3,4] = BatchNormalization(x, one, zero, zero, one)
output y
)");
  EXPECT_EQ(SeparateTensors(*graph, false).size(), 1u);
  EXPECT_EQ(HeldBy(*graph),
            (Names{"one", "zero", "zero.mean", "one.variance"}));
}

// Matrices and vectors with different numbers were tied on purpose, and stay
// tied in any state of training; results inside a module are no parameters.
TEST(SeparateTensors, TiesOfTheModuleStay) {
  const char* text = R"(
input x: float[2,3]
const a.weight: float[3,3] = {1,1,1,1,1,1,1,1,1}
const a.bias: float[3] = {1,2,3}
const c: float[3] = {1,1,1}
b.weight: float[3,3] = Identity(a.weight)
b.bias: float[3] = Identity(a.bias)
"/m/Identity_output_0": float[3] = Identity(c)
p: float[2,3] = Gemm(x, a.weight, a.bias)
q: float[2,3] = Gemm(p, b.weight, b.bias)
r: float[2,3] = Mul(q, "/m/Identity_output_0")
s: float[2,3] = Mul(r, c)
output s
)";
  auto graph = ParseGraph(text);
  auto notes = SeparateTensors(*graph, false);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("a.weight = b.weight, a.bias = b.bias"),
            std::string::npos)
      << notes[0];
  EXPECT_EQ(HeldBy(*graph), (Names{"a.weight", "a.bias", "c"}));
  graph = ParseGraph(text);
  SeparateTensors(*graph, true);
  EXPECT_EQ(HeldBy(*graph),
            (Names{"a.weight", "a.bias", "c", "b.weight", "b.bias"}));
}

}  // namespace
}  // namespace onnx_fp8
