// SPDX-License-Identifier: Apache-2.0
#include "training/step/loss.h"

#include <cmath>

#include "base/check.h"
#include "graph/builder.h"
#include "tests/training/gradient_check.h"
#include "training/step/autodiff.h"

namespace onnx_fp8 {
namespace {

// y (2,3) = x, as output "y".
struct Model {
  explicit Model(Shape shape = {2, 3}, DType dtype = DType::kFloat) {
    Value* x = graph.AddInput("x", dtype, shape);
    Builder b(graph);
    y = b.Op("Identity", {x});
    graph.Rename(y, "y");
    graph.outputs = {y};
    graph.file = "model.onnx";
  }
  Graph graph;
  Value* y;
};

const std::vector<float> kX = {0.5f, -1, 2, 30, 1, -40};

// The loss, and its gradient by x as "dx".
std::map<std::string, Tensor> Evaluate(Model& m, const LossSpec& spec,
                                       const Tensor& label) {
  Value* loss = AddLoss(m.graph, spec);
  EXPECT_EQ(loss->name, "loss");
  EXPECT_EQ(loss->dtype, DType::kFloat);
  EXPECT_EQ(loss->shape, Shape{});
  Value* x = m.graph.Find("x");
  Value* dx = Differentiate(m.graph, loss, {x}).gradient[x];
  m.graph.Rename(dx, "dx");
  std::map<std::string, Tensor> feeds = {
      {"x", Tensor::From<float>(*x->shape, kX)}};
  if (label.defined()) feeds[spec.label] = label;
  return RunGraph(m.graph, feeds);
}

std::string MessageOf(Graph& graph, const LossSpec& spec) {
  try {
    AddLoss(graph, spec);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Loss, CrossEntropyCountsOnlyLabels) {
  Model m({2, 1, 3});
  auto values =
      Evaluate(m, {.kind = "cross_entropy"},
               Tensor::From<int64_t>({2, 1}, std::vector<int64_t>{2, -100}));
  double sum = std::exp(-1.5) + std::exp(-3) + 1;
  EXPECT_NEAR(DoubleAt(values["loss"], 0), std::log(sum), 1e-6);
  const double dx[] = {std::exp(-1.5) / sum, std::exp(-3) / sum, 1 / sum - 1};
  for (int i = 0; i < 3; ++i) {
    EXPECT_NEAR(DoubleAt(values["dx"], i), dx[i], 1e-6);
    EXPECT_EQ(DoubleAt(values["dx"], 3 + i), 0);
  }
  EXPECT_EQ(m.graph.Find("labels")->dtype, DType::kInt64);
  EXPECT_EQ(m.graph.Find("labels")->shape, (Shape{2, 1}));
}

TEST(Loss, CrossEntropyWithoutLabelsHasZeroGradient) {
  Model m;
  auto values = Evaluate(m, {.kind = "cross_entropy", .label = "targets"},
                         Tensor::Ints({-100, -100}));
  EXPECT_TRUE(std::isnan(DoubleAt(values["loss"], 0)));  // as in PyTorch
  for (int i = 0; i < 6; ++i) EXPECT_EQ(DoubleAt(values["dx"], i), 0);
}

TEST(Loss, MeanSquare) {
  Model m;
  std::vector<float> label = {0, -1, 1, 30, 0, -42};
  auto values =
      Evaluate(m, {.kind = "mse"}, Tensor::From<float>({2, 3}, label));
  EXPECT_NEAR(DoubleAt(values["loss"], 0), (0.25 + 1 + 1 + 4) / 6, 1e-6);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NEAR(DoubleAt(values["dx"], static_cast<int64_t>(i)),
                2 * (kX[i] - label[i]) / 6, 1e-6);
  }
}

TEST(Loss, BinaryCrossEntropyNeitherOverflowsNorCancels) {
  Model m;
  std::vector<float> label = {1, 0, 0.25f, 1, 0, 0};
  auto values = Evaluate(m, {.kind = "bce_with_logits"},
                         Tensor::From<float>({2, 3}, label));
  double sum = 0;
  for (size_t i = 0; i < 6; ++i) {
    double x = kX[i], z = label[i];
    sum += std::max(x, 0.0) - x * z + std::log1p(std::exp(-std::fabs(x)));
    EXPECT_NEAR(DoubleAt(values["dx"], static_cast<int64_t>(i)),
                (1 / (1 + std::exp(-x)) - z) / 6, 1e-7);
  }
  EXPECT_NEAR(DoubleAt(values["loss"], 0), sum / 6, 1e-6);
  // A single element that is classified well keeps its tiny loss.
  Model one({1, 1});
  Value* loss = AddLoss(one.graph, {.kind = "bce_with_logits"});
  auto single = RunGraph(
      one.graph,
      {{"x", Tensor::From<float>({1, 1}, std::vector<float>{20})},
       {"labels", Tensor::From<float>({1, 1}, std::vector<float>{1})}});
  EXPECT_NEAR(DoubleAt(single[loss->name], 0), std::exp(-20.0), 1e-14);
}

TEST(Loss, OwnLossIsMadeScalarAndKeepsItsName) {
  Model m({1, 1});
  m.graph.Rename(m.y, "loss");
  Value* loss = AddLoss(m.graph, {.kind = "output:loss"});
  EXPECT_EQ(loss->name, "loss_1");
  EXPECT_EQ(loss->shape, Shape{});
  EXPECT_EQ(m.graph.outputs[0]->name, "loss");
}

TEST(Loss, OwnScalarLossIsUsedAsItIs) {
  Model m(Shape{});
  m.graph.Rename(m.y, "loss");
  EXPECT_EQ(AddLoss(m.graph, {.kind = "output:loss"}), m.y);
  Model other(Shape{});
  Value* loss = AddLoss(other.graph, {.kind = "output:y"});
  EXPECT_EQ(loss->name, "loss");
  EXPECT_EQ(other.graph.outputs[0]->name, "y");
}

TEST(Loss, OtherFloatTypesGiveFloat) {
  for (DType dtype : {DType::kFloat16, DType::kBFloat16, DType::kDouble}) {
    for (const char* kind : {"cross_entropy", "mse", "bce_with_logits"}) {
      Model m({2, 3}, dtype);
      EXPECT_EQ(AddLoss(m.graph, {.kind = kind})->dtype, DType::kFloat);
    }
  }
}

TEST(Loss, OpenShapesStayOpen) {
  Model m({-1, -1, 3});
  Value* loss = AddLoss(m.graph, {.kind = "cross_entropy"});
  EXPECT_EQ(loss->shape, Shape{});
  EXPECT_EQ(m.graph.Find("labels")->shape, (Shape{-1, -1}));
}

TEST(Loss, TakesTheModelsOwnLabelInput) {
  Model m;
  m.graph.AddInput("labels", DType::kInt32, Shape{2});
  AddLoss(m.graph, {.kind = "cross_entropy"});
  EXPECT_EQ(m.graph.inputs.size(), 2u);
}

LabelType Classes(const Shape& shape) { return {DType::kInt64, shape}; }

// The axis of the classes, or the error.
std::string AxisText(const Shape& logits, const LabelType& label,
                     std::optional<int64_t> chosen = {}) {
  Model m(logits);
  LossSpec spec{.kind = "cross_entropy", .class_axis = chosen};
  try {
    return std::to_string(*ResolveLoss(m.graph, spec, label).class_axis);
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Loss, LabelsShowTheAxisOfTheClasses) {
  EXPECT_EQ(AxisText({2, 5, 3, 4}, Classes({2, 3, 4})), "1");
  EXPECT_EQ(AxisText({2, 5, 3, 4}, Classes({2, 1, 3, 4})), "1");
  EXPECT_EQ(AxisText({2, 5, 3, 4}, Classes({2, 5, 3})), "3");
  EXPECT_EQ(AxisText({2, 5, 3}, Classes({2, 3})), "1");
  EXPECT_EQ(AxisText({2, 5, 3}, Classes({2, 5})), "2");
  EXPECT_EQ(AxisText({2, 5}, Classes({2})), "1");
  EXPECT_EQ(AxisText({2, 5}, Classes({2, 1})), "1");
  EXPECT_EQ(AxisText({5}, Classes({})), "0");
  // Pixels as wide as there are classes, in images of another height.
  EXPECT_EQ(AxisText({2, 5, 3, 5}, Classes({2, 3, 5})), "1");
  EXPECT_EQ(AxisText({2, 4, 5, 3}, Classes({2, 4, 3}), 2), "2");
  EXPECT_EQ(AxisText({2, 3, 3}, Classes({2, 3}), -1), "2");
  EXPECT_EQ(AxisText({2, 3, 3}, Classes({2, 3}), 1), "1");
  EXPECT_EQ(AxisText({2, 3}, {DType::kFloat, {2, 3}}), "1");
  EXPECT_EQ(AxisText({2, 3, 3}, {DType::kFloat, {2, 3, 3}}, 1), "1");
}

TEST(Loss, AnAxisIsNeverGuessed) {
  auto contains = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  contains(AxisText({2, 3, 3, 3}, Classes({2, 3, 3})), "fit two");
  contains(AxisText({2, 3, 3}, Classes({2, 3})), "fit two");
  contains(AxisText({2, 3, 4}, {DType::kFloat, {2, 3, 4}}), "fit two");
  contains(AxisText({2, 5, 3, 4}, Classes({2, 4, 3})),
           "expected labels of shape [2,3,4] (classes along axis 1) or [2,5,3] "
           "(classes along axis 3), got [2,4,3]");
  contains(AxisText({2, 5, 3, 4}, Classes({2, 5, 3}), 1),
           "expected labels of shape [2,3,4]");
  contains(AxisText({2, 3}, {DType::kFloat, {2}}),
           "numbers of classes are integers");
  Model m({2, 3, 4, 5});
  contains(MessageOf(m.graph, {.kind = "cross_entropy"}), "`class_axis` 1");
}

TEST(Loss, OptionsBelongToLosses) {
  auto message = [](const LossSpec& spec) -> std::string {
    try {
      CheckLossOptions(spec);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message({.kind = "cross_entropy", .label_smoothing = 1}), "");
  EXPECT_EQ(message({.kind = "nll", .label_smoothing = 0.1}),
            "`label_smoothing` is an option of the loss cross_entropy, got "
            "nll");
  EXPECT_EQ(message({.kind = "mse", .class_weights = {1}}),
            "`class_weights` is an option of the loss cross_entropy and nll, "
            "got mse");
  EXPECT_EQ(message({.kind = "huber", .delta = -1}),
            "`delta`: expected a number above 0, got -1");
  EXPECT_EQ(message({.kind = "nll", .class_weights = {1, -1}}),
            "`class_weights`: expected numbers of at least 0, got -1");
}

TEST(Loss, ErrorsNameWhatThereIs) {
  Model m;
  EXPECT_EQ(
      MessageOf(m.graph, {.kind = "hinge"}),
      "[model.onnx] expected the loss cross_entropy, nll, mse, l1, huber, "
      "kl_div, bce, bce_with_logits, output:NAME or FILE.onnx, got "
      "\"hinge\"; outputs: y");
  EXPECT_EQ(MessageOf(m.graph, {.kind = "mse", .logits = "z"}),
            "[model.onnx] expected a graph output \"z\" for the loss, got "
            "outputs: y");
  EXPECT_EQ(MessageOf(m.graph, {.kind = "output:y"}),
            "[model.onnx] expected a loss of one element, got \"y\" of shape "
            "[2,3]; outputs: y");
  EXPECT_EQ(MessageOf(m.graph, {.kind = "mse", .label = "y"}),
            "[model.onnx] expected a name for the label that the model does "
            "not use, got \"y\"");
  m.graph.AddInput("wrong", DType::kInt64, Shape{3});
  EXPECT_EQ(MessageOf(m.graph, {.kind = "cross_entropy", .label = "wrong"}),
            "[model.onnx] expected labels of shape [2], got [3] in input "
            "\"wrong\"");
  EXPECT_EQ(MessageOf(m.graph, {.kind = "mse", .label = "wrong"}),
            "[model.onnx] expected float labels, got int64 in input "
            "\"wrong\"");
  Model scalar(Shape{});
  EXPECT_NE(MessageOf(scalar.graph, {.kind = "cross_entropy"})
                .find("expected logits (…, C)"),
            std::string::npos);
  Model ints({2}, DType::kInt64);
  EXPECT_NE(MessageOf(ints.graph, {.kind = "mse"}).find("got int64 \"y\""),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
