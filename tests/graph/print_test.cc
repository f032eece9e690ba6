// SPDX-License-Identifier: Apache-2.0
#include "graph/print.h"

#include <gtest/gtest.h>

#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

constexpr char kText[] =
    R"(graph "two layers" opset 20
input x: float[batch,3]
input const lr: float[] = {0.001}
param w: float[3,4]
const axes: int64[2] = {0,-1}
const big: float[9]
moment m: float[3,4]
scale "a scale": float[]
statistic mean: float[3]
sum s: float[3]
counter step: int64[]
state other: float[]
const "const.int64[1] 0": int64[1] = {0}
h: float[?,4] = MatMul(x, w)  # blocks.0/linear
a: float, _, b: bool[] = com.x.Three<alpha=0.5, axis=-1, beta=2.0, list=[1,2], mode="a b", w=[1.5,1e+30]>(h, , "const.int64[1] 0")
m2: float[3,4] = Add(m, w)
output a
output x
update m = m2
)";

TEST(Print, SaysAllThatTheGraphHolds) {
  EXPECT_EQ(Print(*ParseGraph(kText)), kText);
}

TEST(Print, HidesValuesOfWeights) {
  Graph graph;
  Value* w = graph.AddInitializer("w", Tensor::Scalar(0.25f));
  EXPECT_EQ(Print(graph),
            "graph \"graph\" opset 24\nconst w: float[] = {0.25}\n");
  w->role = Role::kFrozen;
  EXPECT_EQ(Print(graph), "graph \"graph\" opset 24\nfrozen w: float[]\n");
}

TEST(Print, NumbersReadBackAsThemselves) {
  Graph graph;
  float nan = std::numeric_limits<float>::quiet_NaN();
  float inf = std::numeric_limits<float>::infinity();
  graph.AddInitializer(
      "f", Tensor::From<float>(
               {6}, std::vector<float>{0.1f, 1e10f, -0.0f, nan, inf, -inf}));
  graph.AddInitializer("d", Tensor::Scalar(0.1));
  graph.AddInitializer("u", Tensor::Scalar<uint64_t>(~uint64_t{0}));
  graph.AddInitializer("e", ConvertTo(Tensor::Scalar(448.0f), DType::kE4M3));
  graph.AddInitializer("none", Tensor::Zeros(DType::kFloat, {0}));
  EXPECT_EQ(Print(graph), R"(graph "graph" opset 24
const f: float[6] = {0.1,1e+10,-0.0,nan,inf,-inf}
const d: double[] = {0.1}
const u: uint64[] = {18446744073709551615}
const e: float8e4m3fn[] = {448.0}
const none: float[0] = {}
)");
}

TEST(Print, QuotesOddNamesAndIndentsSubgraphs) {
  auto body = std::make_shared<Graph>();
  Value* inner = body->AddCaptured("x\n\"y");
  Node* negate = body->AddNode("Neg", {inner}, {"_"});
  body->outputs.push_back(negate->out(0));
  Graph graph;
  Value* c = graph.AddInput("c", DType::kBool, Shape{});
  graph.AddInput("x\n\"y", DType::kFloat, std::nullopt);
  graph.AddNode("If", {c}, {"z"}, {{"then_branch", body}, {"t", Tensor()}});
  EXPECT_EQ(Print(graph), R"(graph "graph" opset 24
input c: bool[]
input "x\x0a\"y": float
z: ? = If<t=undefined[]{...}, then_branch={
  captured "x\x0a\"y": ?
  "_": ? = Neg("x\x0a\"y")
  output "_"
}>(c)
)");
}

TEST(NodePath, IsModuleAndCall) {
  Graph graph;
  Node* node = graph.AddNode("Add", {}, {"y"});
  EXPECT_EQ(NodePath(*node), "");
  node->name = "/vit/Add\n";
  EXPECT_EQ(NodePath(*node), "/vit/Add ");
  std::string& scopes = node->metadata["pkg.torch.onnx.name_scopes"];
  scopes = "['', 'blocks.0', 'blocks.0.ln_1', 'layer_norm']";
  EXPECT_EQ(NodePath(*node), "blocks.0.ln_1/layer_norm");
  scopes = "['', 'linear']";
  EXPECT_EQ(NodePath(*node), "linear");
  scopes = R"(["it's", 'a\'b'])";
  EXPECT_EQ(NodePath(*node), "it's/a'b");
  scopes = "['open";
  EXPECT_EQ(NodePath(*node), "open");
  scopes = "";
  EXPECT_EQ(NodePath(*node), "/vit/Add ");
}

}  // namespace
}  // namespace onnx_fp8
