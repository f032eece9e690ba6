// SPDX-License-Identifier: Apache-2.0
//
// The rule of torch.amp.GradScaler (ATen's amp_update_scale).
#include "optimizers/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"

namespace onnx_fp8 {
namespace {

// The scale after each step; `good` says which steps are.
std::vector<float> Scales(const LossScaling& how,
                          const std::vector<bool>& good) {
  auto graph = std::make_shared<Graph>();
  graph->opset = 24;
  LossScale state;
  auto add = [&](const char* name, Tensor initial) {
    Value* value = graph->AddInitializer(name, initial);
    value->role = Role::kLossScale;
    return value;
  };
  state.scale = add("s", Tensor::Scalar(static_cast<float>(how.init)));
  state.good_steps = add("g", Tensor::Scalar(int64_t{0}));
  Value* ok = graph->AddInput("ok", DType::kBool, Shape{});
  UpdateLossScale(*graph, state, how, ok);
  auto cpu = MakeCpuProvider();
  Executor executor(graph, *cpu);
  TensorMap tensors;
  std::vector<float> scales;
  for (bool step : good) {
    executor.Run({{"ok", Tensor::Scalar(step)}}, tensors);
    scales.push_back(*tensors.at("s").data<float>());
  }
  return scales;
}

TEST(LossScale, DoublesAfterGoodStepsInARow) {
  EXPECT_EQ(Scales({.init = 8, .interval = 3},
                   {true, true, true, true, true, true, true}),
            (std::vector<float>{8, 8, 16, 16, 16, 32, 32}));
}

TEST(LossScale, HalvesAfterABadStepAndCountsAnew) {
  EXPECT_EQ(Scales({.init = 8, .interval = 3},
                   {true, true, false, true, true, true, false, false}),
            (std::vector<float>{8, 8, 4, 4, 4, 8, 4, 2}));
  EXPECT_EQ(Scales({.init = 8, .interval = 3}, {true, false, true, true, true}),
            (std::vector<float>{8, 4, 4, 4, 8}));
}

TEST(LossScale, TakesOtherFactors) {
  EXPECT_EQ(Scales({.init = 100, .growth = 3, .backoff = 0.25, .interval = 1},
                   {true, true, false}),
            (std::vector<float>{300, 900, 225}));
}

TEST(LossScale, NeverGrowsToInfinity) {
  float most = std::numeric_limits<float>::max();
  EXPECT_EQ(Scales({.init = most, .interval = 1}, {true, true, false}),
            (std::vector<float>{most, most, most / 2}));
}

TEST(LossScale, RefusesImpossibleSettings) {
  for (LossScaling how :
       {LossScaling{.init = 0}, LossScaling{.init = INFINITY},
        LossScaling{.init = 1e39}, LossScaling{.init = NAN},
        LossScaling{.growth = 0.5}, LossScaling{.growth = INFINITY},
        LossScaling{.backoff = 0}, LossScaling{.backoff = 1.5},
        LossScaling{.interval = 0}}) {
    EXPECT_THROW(CheckLossScaling(how), Error);
  }
  CheckLossScaling({});
}

}  // namespace
}  // namespace onnx_fp8
