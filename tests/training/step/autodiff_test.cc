// SPDX-License-Identifier: Apache-2.0
#include "training/step/autodiff.h"

#include <cmath>
#include <limits>

#include "base/check.h"
#include "graph/builder.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/gradient_check.h"

namespace onnx_fp8 {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Value* SumAll(Builder& b, Value* x) { return b.SumTo(x, {}); }

int CountNodes(const Graph& graph, const std::string& op) {
  int count = 0;
  for (const Node& node : graph.nodes()) count += node.op == op;
  return count;
}

std::string MessageOf(Graph& graph, Value* loss,
                      const std::vector<Value*>& wanted) {
  try {
    Differentiate(graph, loss, wanted);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Autodiff, SumsOverAllUses) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2});
  Value* y = b.Add(b.Mul(x, x), b.Add(x, b.Mul(x, b.Scalar(3, x))));
  Value* loss = SumAll(b, y);
  Value* dx = Differentiate(graph, loss, {x}).gradient.at(x);
  EXPECT_EQ(dx->name, "grad.x");
  auto values = RunGraph(graph, {{"x", Floats({2}, {5, -1})}});
  EXPECT_EQ(DoubleAt(values["grad.x"], 0), 2 * 5 + 1 + 3);
  EXPECT_EQ(DoubleAt(values["grad.x"], 1), -2 + 1 + 3);
}

TEST(Autodiff, LeavesOutWhatTheLossDoesNotDependOn) {
  Graph graph;
  Builder b(graph);
  Value* used = graph.AddInput("used", DType::kFloat, Shape{2});
  Value* unused = graph.AddInput("unused", DType::kFloat, Shape{2});
  Value* floored = graph.AddInput("floored", DType::kFloat, Shape{2});
  Value* counted = graph.AddInput("counted", DType::kFloat, Shape{2});
  b.Op("Exp", {unused});
  Value* sum = b.Add(used, b.Op("Floor", {floored}));
  sum = b.Add(sum, b.Cast(b.Cast(counted, DType::kInt64), DType::kFloat));
  BackwardResult result =
      Differentiate(graph, SumAll(b, sum), {used, unused, floored, counted});
  EXPECT_EQ(result.gradient.size(), 1u);
  EXPECT_TRUE(result.gradient.contains(used));
}

TEST(Autodiff, DifferentiatesByResultsOfNodesToo) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{1});
  Value* y = b.Op("Exp", {x});
  Value* loss = b.Reshape(b.Mul(y, y), {});
  BackwardResult result = Differentiate(graph, loss, {x, y, loss});
  Value *dx = result.gradient.at(x), *dy = result.gradient.at(y);
  auto values = RunGraph(graph, {{"x", Floats({1}, {2})}});
  double e = std::exp(2.0);
  EXPECT_NEAR(DoubleAt(values[dx->name], 0), 2 * e * e, 1e-4);
  EXPECT_NEAR(DoubleAt(values[dy->name], 0), 2 * e, 1e-5);
  EXPECT_EQ(DoubleAt(result.gradient.at(loss)->data, 0), 1);
}

TEST(Autodiff, TheSeedIsNoOtherConstant) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{});
  Value* loss = b.Add(x, b.Scalar(1, x));
  BackwardResult result = Differentiate(graph, loss, {x});
  EXPECT_EQ(result.gradient.at(x), result.seed);
  EXPECT_EQ(DoubleAt(result.seed->data, 0), 1);
  EXPECT_TRUE(result.seed->uses.empty());
}

TEST(Autodiff, KeepsTheDtypeOfEachValue) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat16, Shape{2, 3});
  Value* w = graph.AddInput("w", DType::kBFloat16, Shape{3});
  Value* y = b.Mul(b.Cast(x, DType::kFloat), b.Cast(w, DType::kFloat));
  BackwardResult result = Differentiate(graph, SumAll(b, y), {x, w});
  EXPECT_EQ(result.gradient.at(x)->dtype, DType::kFloat16);
  EXPECT_EQ(result.gradient.at(w)->dtype, DType::kBFloat16);
  EXPECT_EQ(result.gradient.at(w)->shape, Shape{3});
}

TEST(Autodiff, NewNodesCarryTheForwardNodesMetadata) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2});
  Value* y = b.Op("Tanh", {x});
  y->producer->metadata["path"] = "blocks.0.act";
  y->producer->name = "/blocks.0/act/Tanh";
  Value* loss = SumAll(b, y);
  size_t before = graph.nodes().size();
  Differentiate(graph, loss, {x});
  int found = 0;
  size_t at = 0;
  for (const Node& node : graph.nodes()) {
    if (at++ < before || node.op != "Mul") continue;
    ++found;
    EXPECT_EQ(node.metadata.at("path"), "blocks.0.act");
    EXPECT_EQ(node.metadata.at(kForwardName), "/blocks.0/act/Tanh");
  }
  EXPECT_GT(found, 0);
}

TEST(Autodiff, LinearLayersGiveTwoGemmsWithFlags) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{4, 3});
  Value* w = graph.AddInput("w", DType::kFloat, Shape{2, 3});
  Value* y = b.Op("Gemm", {x, w}, {{"transB", int64_t{1}}});
  Differentiate(graph, SumAll(b, b.Op("Exp", {y})), {x, w});
  EXPECT_EQ(CountNodes(graph, "Gemm"), 3);
  EXPECT_EQ(CountNodes(graph, "Transpose"), 0);
}

TEST(Autodiff, AWeightOfABatchGivesOneGemmOverAllRows) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{5, 4, 3});
  Value* w = graph.AddInput("w", DType::kFloat, Shape{3, 2});
  Differentiate(graph, SumAll(b, b.Op("MatMul", {x, w})), {x, w});
  EXPECT_EQ(CountNodes(graph, "Gemm"), 2);
  EXPECT_EQ(CountNodes(graph, "MatMul"), 1);
  EXPECT_EQ(CountNodes(graph, "Transpose"), 0);
}

TEST(Autodiff, MasksOfMinusInfinityStayFinite) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2, 3});
  Tensor mask = Tensor::Zeros(DType::kBool, {2, 3});
  mask.data<bool>()[1] = true;  // row 0 sees one place, row 1 none
  Value* scores = b.Op("Where", {b.Constant(mask), x, b.Scalar(-kInfinity, x)});
  Value* p = b.Op("Softmax", {scores});
  // PyTorch's guard: rows without any place are NaN; they become 0.
  p = b.Op("Where", {b.Op("IsNaN", {p}), b.Scalar(0, x), p});
  Value* loss = SumAll(b, b.Mul(p, x));
  Differentiate(graph, loss, {x});
  auto values = RunGraph(graph, {{"x", Floats({2, 3}, {1, 2, 3, 4, 5, 6})}});
  const double expected[] = {0, 1, 0, 0, 0, 0};
  for (int i = 0; i < 6; ++i) {
    EXPECT_EQ(DoubleAt(values["grad.x"], i), expected[i]) << i;
  }
}

TEST(Autodiff, SoftmaxOfVeryNegativeRowsIsFinite) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2, 2});
  Value* lowest = b.Scalar(-std::numeric_limits<float>::max(), x);
  Value* p = b.Op("Softmax", {b.Add(x, lowest)});
  Differentiate(graph, SumAll(b, b.Mul(p, p)), {x});
  auto values = RunGraph(graph, {{"x", Floats({2, 2}, {1, 2, -3, 4})}});
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(DoubleAt(values["grad.x"], i), 0) << i;
  }
}

TEST(Autodiff, IgnoredSamplesMayHoldAnything) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2, 2});
  Value* labels = b.Ints({1, -100});
  Value* loss = b.Op(
      "SoftmaxCrossEntropyLoss", {x, labels},
      {{"ignore_index", int64_t{-100}}, {"reduction", std::string("sum")}});
  Differentiate(graph, loss, {x});
  auto values =
      RunGraph(graph, {{"x", Floats({2, 2}, {0, 0, kInfinity, -kInfinity})}});
  const double expected[] = {0.5, -0.5, 0, 0};
  for (int i = 0; i < 4; ++i) {
    EXPECT_NEAR(DoubleAt(values["grad.x"], i), expected[i], 1e-6) << i;
  }
}

TEST(Autodiff, DropoutUsesItsMask) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{64});
  Value* ratio = b.Scalar(0.25, x);
  Value* on = b.Constant(
      Tensor::From<bool>({}, std::span<const bool>(std::array{true})));
  Value* y = b.Op("Dropout", {x, ratio, on}, {{"seed", int64_t{7}}});
  Differentiate(graph, SumAll(b, y), {x});
  ASSERT_EQ(y->producer->outputs().size(), 2u);
  std::vector<float> ones(64, 1);
  auto values = RunGraph(graph, {{"x", Floats({64}, ones)}});
  int kept = 0;
  for (int i = 0; i < 64; ++i) {
    EXPECT_EQ(DoubleAt(values["grad.x"], i), DoubleAt(values[y->name], i));
    kept += DoubleAt(values["grad.x"], i) != 0;
  }
  EXPECT_GT(kept, 32);
  EXPECT_LT(kept, 64);
}

// y of a row does not change with the row's mean or scale.
TEST(Autodiff, ExpandsOpsThatHaveABodyOnly) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2, 4});
  Value* y = b.Op("MeanVarianceNormalization", {x},
                  {{"axes", std::vector<int64_t>{1}}});
  Value* w = b.Constant(Floats({2, 4}, {1, 2, -1, 3, 0, 1, 5, -2}));
  Value* loss = SumAll(b, b.Mul(y, w));
  graph.outputs = {y};
  Differentiate(graph, loss, {x});
  EXPECT_EQ(CountNodes(graph, "MeanVarianceNormalization"), 0);
  std::vector<float> data = {0, 1, 3, -2, 4, 1, 0, 2};
  auto values = RunGraph(graph, {{"x", Floats({2, 4}, data)}});
  ASSERT_TRUE(values.contains(y->name));
  double largest = 0;
  for (int64_t row = 0; row < 2; ++row) {
    double sum = 0, along = 0;
    for (int64_t i = 4 * row; i < 4 * row + 4; ++i) {
      double g = DoubleAt(values["grad.x"], i);
      sum += g;
      along += g * static_cast<double>(data[static_cast<size_t>(i)]);
      largest = std::max(largest, std::fabs(g));
    }
    EXPECT_NEAR(sum, 0, 1e-5);
    EXPECT_NEAR(along, 0, 1e-5);
  }
  EXPECT_GT(largest, 0.1);
}

// The mean is all that is read of the norm.
TEST(Autodiff, OfASecondOutputAlone) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2, 4});
  Value* scale = graph.AddInput("scale", DType::kFloat, Shape{4});
  Value* mean = b.Ops("LayerNormalization", {x, scale}, 2)[1];
  BackwardResult result =
      Differentiate(graph, SumAll(b, b.Mul(mean, mean)), {x, scale});
  EXPECT_FALSE(result.gradient.contains(scale));
  Value* dx = result.gradient.at(x);
  auto values =
      RunGraph(graph, {{"x", Floats({2, 4}, {1, 2, 3, 6, 0, 0, 0, 4})},
                       {"scale", Floats({4}, {1, 1, 1, 1})}});
  for (int i = 0; i < 8; ++i) {
    EXPECT_EQ(DoubleAt(values[dx->name], i), (i < 4 ? 3 : 1) * 2 / 4.0);
  }
}

TEST(Autodiff, RefusesALossThatIsNotOneFloat) {
  Graph graph;
  graph.file = "m.onnx";
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2});
  Value* n = graph.AddInput("n", DType::kInt64, Shape{});
  EXPECT_EQ(MessageOf(graph, x, {x}),
            "[m.onnx] expected one float as loss, got float \"x\" of shape "
            "[2]");
  EXPECT_EQ(MessageOf(graph, n, {x}),
            "[m.onnx] expected one float as loss, got int64 \"n\" of shape "
            "[]");
  Value* one = graph.AddInput("one", DType::kFloat, Shape{1, 1});
  EXPECT_EQ(MessageOf(graph, one, {n}),
            "[m.onnx] expected a float value to differentiate by, got int64 "
            "\"n\"");
}

TEST(Autodiff, NamesAllOpsWithoutGradientAtOnce) {
  Graph graph;
  graph.file = "m.onnx";
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{2, 2});
  Value* image = b.Reshape(x, {1, 1, 2, 2});
  auto zeros = [&](const Shape& shape) {
    return b.Constant(Tensor::Zeros(DType::kFloat, shape));
  };
  const Attributes one = {{"pooled_shape", std::vector<int64_t>{1, 1}}};
  Value* pool = b.Op("MaxRoiPool", {image, zeros({1, 5})}, one);
  pool->producer->name = "first";
  Value* y = b.Add(
      pool, b.Op("MaxRoiPool", {b.Op("Exp", {image}), zeros({1, 5})}, one));
  Value* z = b.Op("NonZero", {x});  // not on the path: a zero rule
  ASSERT_NE(z, nullptr);
  Value* align = b.Op("RoiAlign", {image, zeros({1, 4}), b.Ints({0})});
  Value* sum = b.Op("ReduceSum", {align}, {{"keepdims", int64_t{0}}});
  Value* loss = b.Add(y, sum);
  EXPECT_EQ(
      MessageOf(graph, loss, {x}),
      "[m.onnx] expected ops with a gradient between the trained values "
      "and the loss \"" +
          loss->name +
          "\", got MaxRoiPool (2 nodes, first: MaxRoiPool first); RoiAlign "
          "(1 node: RoiAlign -> RoiAlign)");
}

TEST(Autodiff, RefusesOpenShapes) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, 3});
  Value* loss =
      b.Op("ReduceSum", {b.Op("Exp", {x})}, {{"keepdims", int64_t{0}}});
  EXPECT_EQ(MessageOf(graph, loss, {x}),
            "[ReduceSum -> ReduceSum] expected concrete shapes for the "
            "backward graph, got [?,3] for \"Exp\"");
}

TEST(Autodiff, RefusesSubgraphsThatCaptureWhatIsTrained) {
  Graph graph;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{});
  Value* c = graph.AddInput("c", DType::kBool, Shape{});
  auto branch = std::make_shared<Graph>();
  branch->AddCaptured("x");
  branch->outputs = {
      branch->AddNode("Exp", {branch->Find("x")}, {"z"})->out(0)};
  Node* node = graph.AddNode(
      "If", {c}, {"y"}, {{"then_branch", branch}, {"else_branch", branch}});
  node->out(0)->dtype = DType::kFloat;
  node->out(0)->shape = Shape{};
  EXPECT_NE(MessageOf(graph, node->out(0), {x}).find("got If (1 node: If"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
