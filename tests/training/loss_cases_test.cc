// SPDX-License-Identifier: Apache-2.0
//
// Every loss with its options and several shapes, against PyTorch (the numbers
// of tests/fixtures/losses) and against central differences.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/check.h"
#include "tests/support/paths.h"
#include "tests/training/gradient_check.h"
#include "training/make_provider.h"
#include "training/step/loss.h"
#include "training/step/loss_values.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::json;

void Flatten(const Json& numbers, std::vector<double>* all, Shape* shape,
             size_t depth = 0) {
  if (!numbers.is_array()) return all->push_back(numbers.get<double>());
  if (shape->size() == depth) shape->push_back(std::ssize(numbers));
  for (const Json& part : numbers) Flatten(part, all, shape, depth + 1);
}

Tensor TensorOf(const Json& numbers, DType dtype) {
  std::vector<double> all;
  Shape shape;
  Flatten(numbers, &all, &shape);
  return ConvertTo(Tensor::From<double>(shape, all), dtype);
}

bool HasFraction(const Json& numbers) {
  if (!numbers.is_array()) return numbers.is_number_float();
  return std::ranges::any_of(numbers, HasFraction);
}

struct Case {
  explicit Case(const Json& json)
      : text(json["loss"].get<std::string>() + json["options"].dump()),
        y(TensorOf(json["y"], DType::kFloat)),
        label(TensorOf(json["labels"], HasFraction(json["labels"])
                                           ? DType::kFloat
                                           : DType::kInt64)),
        gradient(TensorOf(json["gradient"], DType::kFloat)),
        value(json["value"].get<double>()) {
    const Json& options = json["options"];
    spec.kind = json["loss"].get<std::string>();
    auto read = [&](const char* name, auto* option) {
      if (options.contains(name)) options[name].get_to(option->emplace());
    };
    read("class_axis", &spec.class_axis);
    read("ignore_index", &spec.ignore_index);
    read("label_smoothing", &spec.label_smoothing);
    read("delta", &spec.delta);
    if (options.contains("class_weights")) {
      options["class_weights"].get_to(spec.class_weights);
    }
    text += Concat(" ", ToString(y.shape()), ToString(label.shape()));
  }

  std::string text;
  LossSpec spec;
  Tensor y, label, gradient;
  double value;
};

std::vector<Case> Cases() {
  std::ifstream file(SourcePath("tests/fixtures/losses/cases.json"));
  std::vector<Case> cases;
  for (const Json& json : Json::parse(file)) cases.emplace_back(json);
  return cases;
}

// The loss at `y`, and its gradient as "dy".
std::map<std::string, Tensor> LossAndGradient(const Case& c) {
  Graph graph;
  graph.file = "model.onnx";
  Value* x = graph.AddInput("x", DType::kFloat, c.y.shape());
  Builder b(graph);
  Value* y = b.Op("Identity", {x});
  graph.Rename(y, "y");
  graph.outputs = {y};
  CheckLossOptions(c.spec);
  Value* loss =
      AddLoss(graph, c.spec, LabelType{c.label.dtype(), c.label.shape()});
  Value* dx = Differentiate(graph, loss, {x}).gradient[x];
  graph.Rename(dx, "dy");
  return RunGraph(graph, {{"x", c.y}, {"labels", c.label}});
}

TEST(LossCases, ArePyTorchs) {
  const std::vector<Case> cases = Cases();
  EXPECT_GT(cases.size(), 100u);
  for (const Case& c : cases) {
    auto values = LossAndGradient(c);
    EXPECT_NEAR(DoubleAt(values["loss"], 0), c.value,
                2e-6 * std::max(1.0, std::fabs(c.value)))
        << c.text;
    double largest = 1e-3;
    for (int64_t i = 0; i < c.y.size(); ++i) {
      largest = std::max(largest, std::fabs(DoubleAt(c.gradient, i)));
    }
    for (int64_t i = 0; i < c.y.size(); ++i) {
      const double wanted = DoubleAt(c.gradient, i);
      const double scale = std::min(largest, std::max(1.0, std::fabs(wanted)));
      EXPECT_NEAR(DoubleAt(values["dy"], i), wanted, 2e-6 * scale)
          << c.text << " at " << i;
    }
  }
}

// By evaluation's way to the loss.
TEST(LossCases, GradientsAreDifferences) {
  const auto evaluator = MakeEvaluator();
  for (const Case& c : Cases()) {
    if (c.spec.kind == "bce") continue;  // its slope is steep near 0 and 1
    auto values = LossAndGradient(c);
    for (int64_t i = 0; i < c.y.size(); ++i) {
      constexpr float kStep = 1.0f / 64;
      double loss[2];
      for (int side : {0, 1}) {
        Tensor moved = c.y.Clone();
        moved.data<float>()[i] += side == 0 ? -kStep : kStep;
        loss[side] = LossOf(c.spec, moved, c.label, *evaluator);
      }
      const double slope = (loss[1] - loss[0]) / (2 * kStep);
      // Distances and Huber's loss bend.
      const double bound = c.spec.kind == "l1" ? 0.2 : 2e-3;
      EXPECT_NEAR(DoubleAt(values["dy"], i), slope, bound) << c.text << i;
    }
  }
}

// A label that is counted has the share of its weight in a mean over batches.
TEST(LossCases, WeightsOfBatchesGiveTheMeanOfBoth) {
  const auto evaluator = MakeEvaluator();
  int checked = 0;
  for (const Case& c : Cases()) {
    if (c.y.dim(0) < 2 || c.y.dim(0) != c.label.dim(0)) continue;
    double sum = 0, all = 0;
    for (int half : {0, 1}) {
      auto part = [&](const Tensor& t) {
        Shape shape = t.shape();
        const int64_t rows = half == 0 ? 1 : shape[0] - 1;
        const int64_t row = t.size() / shape[0];
        shape[0] = rows;
        Tensor out = Tensor::Allocate(t.dtype(), shape);
        const size_t bytes = t.bytes() / static_cast<size_t>(t.size());
        std::memcpy(out.raw(),
                    static_cast<const std::byte*>(t.raw()) +
                        (half == 0 ? 0 : static_cast<size_t>(row) * bytes),
                    out.bytes());
        return out;
      };
      const Tensor y = part(c.y), label = part(c.label);
      const double weight = WeightOfLabels(c.spec, y, label, *evaluator);
      if (weight == 0) continue;
      sum += weight * LossOf(c.spec, y, label, *evaluator);
      all += weight;
    }
    EXPECT_NEAR(sum / all, c.value, 4e-6 * std::max(1.0, std::fabs(c.value)))
        << c.text;
    ++checked;
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace onnx_fp8
