// SPDX-License-Identifier: Apache-2.0
//
// The largest update of a graph's parameters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "optimizers/optimizer.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/join_moments.h"
#include "providers/run/executor.h"

namespace onnx_fp8 {
namespace {

// A matrix whose moments may be codes, and a vector, whose moments then are
// floats.
class TwoParameters {
 public:
  TwoParameters(const OptimizerSpec& spec, bool joins)
      : graph_(std::make_shared<Graph>()), cpu_(MakeCpuProvider()) {
    graph_->opset = 24;
    std::vector<ParameterGradient> parameters;
    for (const auto& [name, shape] :
         {std::pair{"w", Shape{32, 130}}, std::pair{"b", Shape{7}}}) {
      const Tensor zeros = Tensor::Zeros(DType::kFloat, shape);
      Value* p = graph_->AddInitializer(name, zeros);
      p->role = Role::kParameter;
      Value* g =
          graph_->AddInput(std::string("d") + name, DType::kFloat, shape);
      parameters.push_back({p, g, name});
      feeds_[g->name] = zeros;
    }
    feeds_["lr"] = Tensor::Scalar(1e-3f);
    OptimizerValues values = AppendOptimizer(*graph_, parameters, spec);
    output_ = values.update_amax->name;
    graph_->outputs = {values.update_amax};
    if (joins) JoinMoments(*graph_, CpuKernels());
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
  }

  // All elements have this gradient.
  float Step(float w, float b) {
    std::fill_n(feeds_.at("dw").data<float>(), feeds_.at("dw").size(), w);
    std::fill_n(feeds_.at("db").data<float>(), feeds_.at("db").size(), b);
    return executor_->Run(feeds_, state_).at(output_).data<float>()[0];
  }

  // Each element of that state gets `factor` times its number.
  void Multiply(const std::string& name, float factor) {
    Tensor changed = ConvertTo(state_.at(name), DType::kFloat);
    for (int64_t i = 0; i < changed.size(); ++i) {
      changed.data<float>()[i] *= factor;
    }
    state_[name] = ConvertTo(changed, state_.at(name).dtype());
  }

 private:
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_;
  std::unique_ptr<Executor> executor_;
  TensorMap feeds_, state_;
  std::string output_;
};

OptimizerSpec SpecOf(const char* moments) {
  return {.kind = "adamw", .lr = 1e-3, .moments = moments};
}

// A mean of squares that is lost makes the next update large. The loss of a
// step comes before its update and can't show it.
TEST(LargestUpdate, ShowsAMeanOfSquaresThatIsTooSmall) {
  for (bool joins : {false, true}) {
    for (const char* moments : {"bfloat16", "fp8"}) {
      SCOPED_TRACE(Concat(moments, ", joined ", joins));
      TwoParameters trained(SpecOf(moments), joins);
      EXPECT_NEAR(trained.Step(0.5f, 0.25f), 1, 1e-4);
      EXPECT_NEAR(trained.Step(0.5f, 0.25f), 1, 0.1);
      // Codes share a scale, which is multiplied, and the square of the root.
      const bool codes = moments == std::string("fp8");
      trained.Multiply(codes ? "w.exp_avg_sq.scale" : "w.exp_avg_sq", 1e-12f);
      // m = 0.9 · 0.095 of the gradient 0.5; v has only the floor of eps.
      EXPECT_GT(trained.Step(0, 0), 1e5);
    }
  }
}

TEST(LargestUpdate, CoversParametersWhoseMomentsAreFloats) {
  TwoParameters trained(SpecOf("fp8"), true);
  trained.Step(0.5f, 0.25f);
  trained.Multiply("b.exp_avg_sq", 1e-20f);
  EXPECT_GT(trained.Step(0, 0), 1e5);
}

TEST(LargestUpdate, AStepThatIsNotOkHasNone) {
  TwoParameters trained(SpecOf("bfloat16"), true);
  EXPECT_EQ(trained.Step(std::numeric_limits<float>::infinity(), 1), 0);
  EXPECT_NEAR(trained.Step(1, 1), 1, 1e-4);
}

}  // namespace
}  // namespace onnx_fp8
