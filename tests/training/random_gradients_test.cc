// SPDX-License-Identifier: Apache-2.0
//
// A session computes gradients of random models, with all of its passes. They
// equal differences of the loss. The loss is computed in float64, by the nodes
// of the file, one after the other.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"
#include "graph/onnx/onnx_io.h"
#include "tests/training/gradient_check.h"
#include "tests/training/random_model.h"

namespace onnx_fp8 {
namespace {

// The mean cross entropy. The last axis of the logits has the classes.
double CrossEntropy(const Tensor& logits, const Tensor& labels) {
  const int64_t classes = logits.shape().back();
  double sum = 0;
  for (int64_t i = 0; i < labels.size(); ++i) {
    const double* row = logits.data<double>() + i * classes;
    const double most = *std::max_element(row, row + classes);
    double total = 0;
    for (int64_t c = 0; c < classes; ++c) total += std::exp(row[c] - most);
    sum += most + std::log(total) - row[labels.data<int64_t>()[i]];
  }
  return sum / static_cast<double>(labels.size());
}

// The model in float64.
class Model64 {
 public:
  Model64(const RandomModel& model, const TensorMap& batch)
      : graph_(ReadModel(model.options.model)), labels_(batch.at("labels")) {
    for (Value* value : graph_->Values()) {
      if (value->dtype == DType::kFloat) value->dtype = DType::kDouble;
    }
    for (const Value* input : graph_->inputs) {
      const Tensor& fed = batch.at(input->name);
      feeds_[input->name] = IsFloat(fed.dtype()) ? InDouble(fed) : fed;
    }
    for (Value* value : graph_->Initializers()) {
      if (IsFloat(value->data.dtype())) value->data = InDouble(value->data);
    }
  }

  double Loss() {
    const auto values = RunGraph(*graph_, feeds_);
    return CrossEntropy(values.at(graph_->outputs[0]->name), labels_);
  }

  // With the parameter moved by `step` times `direction`.
  double LossAt(const std::string& name, double step,
                const std::vector<double>& direction) {
    Value* value = graph_->Find(name);
    const Tensor before = value->data;
    value->data = before.Clone();
    for (size_t i = 0; i < direction.size(); ++i) {
      value->data.data<double>()[i] += step * direction[i];
    }
    const double loss = Loss();
    value->data = before;
    return loss;
  }

 private:
  static Tensor InDouble(const Tensor& t) {
    return ConvertTo(t, DType::kDouble);
  }

  std::unique_ptr<Graph> graph_;
  TensorMap feeds_;
  Tensor labels_;
};

double Norm(const std::vector<double>& x) {
  double sum = 0;
  for (double value : x) sum += value * value;
  return std::sqrt(sum);
}

TEST(RandomGradients, AreDifferencesOfTheLoss) {
  const uint64_t models = NumberOfRandomModels();
  // A kink (of Relu, Max, Abs) is rarely this near.
  constexpr double kStep = 1e-7;
  int64_t directions = 0, kinks = 0;
  for (uint64_t seed = 0; seed < models; ++seed) {
    TempDir dir;
    const RandomModel model = WriteRandomModel(dir, seed);
    SCOPED_TRACE(Concat("seed ", seed, "\n", model.text));
    const TensorMap batch = model.Batch(seed);
    auto session = TrainingSession::Create(model.options);
    const GradientResult result = session->Gradients(batch, false);
    Model64 truth(model, batch);
    const double loss = truth.Loss();
    EXPECT_NEAR(result.loss, loss, 1e-5 * std::abs(loss) + 1e-6);
    double all = 0;
    for (const auto& [name, gradient] : result.gradients) {
      all = std::hypot(all, Norm(std::vector<double>(
                                gradient.data<float>(),
                                gradient.data<float>() + gradient.size())));
    }
    for (const auto& [name, gradient] : result.gradients) {
      std::vector<double> direction;
      double expected = 0;
      for (int64_t i = 0; i < gradient.size(); ++i) {
        direction.push_back(RandomUniform(seed, static_cast<uint64_t>(i)) -
                            0.5);
        expected += direction.back() * gradient.data<float>()[i];
      }
      const double forward =
          (truth.LossAt(name, kStep, direction) - loss) / kStep;
      const double backward =
          (loss - truth.LossAt(name, -kStep, direction)) / kStep;
      const double tolerance = 1e-4 * all * Norm(direction) + 1e-6;
      ++directions;
      if (std::abs(forward - backward) > tolerance) {
        ++kinks;
        continue;
      }
      EXPECT_NEAR(expected, (forward + backward) / 2, tolerance) << name;
    }
  }
  EXPECT_LE(100 * kinks, directions);
}

}  // namespace
}  // namespace onnx_fp8
