// SPDX-License-Identifier: Apache-2.0
//
// Averages of weights, beside a loop over the formula of PyTorch's
// torch.optim.swa_utils: AveragedModel copies first, then
// get_ema_multi_avg_fn(decay) moves by torch.lerp.
#include "optimizers/ema.h"

#include <gtest/gtest.h>

#include <memory>

#include "base/check.h"
#include "base/random.h"
#include "graph/passes/early_updates.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kAveragedElements = 5;

Tensor DrawnVector(uint64_t seed, DType dtype) {
  Tensor t = Tensor::Allocate(DType::kFloat, {kAveragedElements});
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return ConvertTo(t, dtype);
}

// One parameter "w" whose gradient is fed, with its average.
class Averaged {
 public:
  Averaged(const OptimizerSpec& spec, DType dtype)
      : dtype_(dtype), graph_(std::make_shared<Graph>()) {
    graph_->opset = 24;
    Value* w = graph_->AddInitializer("w", DrawnVector(1, dtype));
    w->role = Role::kParameter;
    Value* dw = graph_->AddInput("dw", dtype, Shape{kAveragedElements});
    Value* good = graph_->AddInput("good", DType::kBool, Shape{});
    AppendOptimizer(*graph_, {{w, dw, "w"}}, spec, {}, nullptr, {}, {}, good);
    if (spec.release_gradients) RunUpdatesEarly(*graph_);
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
  }

  void Step(uint64_t number, bool good = true) {
    executor_->Run({{"dw", DrawnVector(number + 10, dtype_)},
                    {"good", Tensor::Scalar(good)},
                    {"lr", Tensor::Scalar(0.125f)}},
                   state_);
  }

  Tensor At(const std::string& name) const { return state_.at(name).Clone(); }
  bool Has(const std::string& name) const { return state_.contains(name); }
  const Graph& graph() const { return *graph_; }

 private:
  DType dtype_;
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_ = MakeCpuProvider();
  std::unique_ptr<Executor> executor_;
  TensorMap state_;
};

template <typename T>
void MoveTowards(const Tensor& w, double decay, Tensor* average) {
  const T weight = static_cast<T>(1 - decay);
  for (int64_t i = 0; i < w.size(); ++i) {
    T& x = average->data<T>()[i];
    const T distance = w.data<T>()[i] - x;
    x = x + distance * weight;
  }
}

template <typename T>
void ExpectAverages(const OptimizerSpec& spec, DType dtype) {
  Averaged run(spec, dtype);
  Tensor expected;
  int64_t updates = 0;
  for (uint64_t step = 1; step <= 7; ++step) {
    const bool good = step != 4;
    run.Step(step, good);
    if (good && ++updates % spec.ema_every == 0) {
      if (expected.defined()) {
        MoveTowards<T>(run.At("w"), spec.ema, &expected);
      } else {
        expected = run.At("w");
      }
    }
    EXPECT_EQ(IntAt(run.At(kAveraged), 0), updates / spec.ema_every);
    if (!expected.defined()) continue;
    const Tensor got = run.At("w.ema");
    ASSERT_EQ(got.dtype(), dtype);
    for (int64_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(got.data<T>()[i], expected.data<T>()[i]) << step << " " << i;
    }
  }
  ASSERT_TRUE(expected.defined());
}

TEST(Ema, FollowsTheFormula) {
  for (const char* kind : {"adamw", "adamw_hf", "sgd"}) {
    for (int64_t every : {1, 2}) {
      SCOPED_TRACE(Concat(kind, " ", every));
      OptimizerSpec spec = {
          .kind = kind, .weight_decay = 0.125, .ema = 0.9, .ema_every = every};
      ExpectAverages<float>(spec, DType::kFloat);
      spec.release_gradients = true;
      ExpectAverages<float>(spec, DType::kFloat);
    }
  }
  ExpectAverages<double>({.ema = 0.75}, DType::kDouble);
}

TEST(Ema, NoneIsKeptWithoutIt) {
  Averaged run({}, DType::kFloat);
  run.Step(1);
  EXPECT_FALSE(run.Has("w.ema"));
  EXPECT_FALSE(run.Has(kAveraged));
}

TEST(Ema, ItsStateHasARoleOfItsOwn) {
  const Averaged run({.ema = 0.5}, DType::kFloat);
  EXPECT_EQ(run.graph().Find("w.ema")->role, Role::kAverage);
  EXPECT_STREQ(Name(Role::kAverage), "average");
}

TEST(Ema, ADecayOfOneWouldNeverMoveIt) {
  EXPECT_THROW(CheckOptimizer({.ema = 1}), Error);
  EXPECT_THROW(CheckOptimizer({.ema = -0.5}), Error);
  EXPECT_THROW(CheckOptimizer({.ema = 0.5, .ema_every = 0}), Error);
  CheckOptimizer({.ema = 0.5, .ema_every = 1});
}

}  // namespace
}  // namespace onnx_fp8
