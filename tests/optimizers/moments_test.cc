// SPDX-License-Identifier: Apache-2.0
//
// Moments that are kept as bfloat16, beside loops over the formulas.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>

#include "base/check.h"
#include "base/hash.h"
#include "base/random.h"
#include "base/stochastic_rounding.h"
#include "onnx_fp8/float8.h"
#include "optimizers/optimizer.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/join_moments.h"
#include "providers/run/executor.h"

namespace onnx_fp8 {
namespace {

constexpr uint64_t kSeedOfRun = 0x0123456789ABCDEF;
constexpr float kLr = 0.015625f;

using Numbers = std::vector<float>;

Tensor TensorOf(const Numbers& numbers) {
  return Tensor::From<float>({static_cast<int64_t>(numbers.size())}, numbers);
}

Numbers Drawn(uint64_t seed, size_t n) {
  Numbers numbers(n);
  for (size_t i = 0; i < n; ++i) numbers[i] = RandomUniform(seed, i) - 0.5f;
  return numbers;
}

float ToNearest(float x) { return Decode(EncodeBFloat16(x)); }

// By the draw of element i of w.exp_avg_sq.
float Drawn16(float x, uint64_t seed, int64_t update, int64_t i) {
  const auto stream = static_cast<uint32_t>(Hash("w.exp_avg_sq"));
  const auto positive = static_cast<int64_t>(seed & (~uint64_t{0} >> 1));
  const uint32_t key = DrawKey(positive, stream, update);
  const uint32_t draw = DrawAt(DrawKeyOf(key, i), static_cast<uint32_t>(i));
  const uint32_t y = RoundBFloat16(std::bit_cast<uint32_t>(x), draw);
  return std::bit_cast<float>(y << 16);
}

// One parameter "w" whose gradient is fed.
class Trained {
 public:
  Trained(const OptimizerSpec& spec, const Tensor& start, bool joins,
          uint64_t seed = kSeedOfRun)
      : graph_(std::make_shared<Graph>()), cpu_(MakeCpuProvider()) {
    graph_->opset = 24;
    Value* w = graph_->AddInitializer("w", start);
    w->role = Role::kParameter;
    Value* dw = graph_->AddInput("dw", start.dtype(), start.shape());
    // With released gradients the norm decides nothing.
    Value* good = graph_->AddInput("good", DType::kBool, Shape{});
    AppendOptimizer(*graph_, {{w, dw, "w"}}, spec, {}, nullptr, {}, {}, good,
                    seed);
    if (joins) JoinMoments(*graph_, CpuKernels());
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
  }

  void Step(const Numbers& gradient, bool good = true) {
    StepOn(TensorOf(gradient), good);
  }
  void StepOn(const Tensor& gradient, bool good = true) {
    executor_->Run({{"dw", gradient},
                    {"good", Tensor::Scalar(good)},
                    {"lr", Tensor::Scalar(kLr)}},
                   state_);
  }

  const Tensor& At(const std::string& name) const { return state_.at(name); }
  void Set(const std::string& name, const Tensor& tensor) {
    state_[name] = tensor;
  }
  const TensorMap& state() const { return state_; }

 private:
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_;
  std::unique_ptr<Executor> executor_;
  TensorMap state_;
};

// The same in loops of floats, in the order of the formulas in
// graph/schemas/optimizers.cc.
class Loops {
 public:
  Loops(const OptimizerSpec& spec, const Numbers& start)
      : spec_(spec), w(start), first(start.size()), square(start.size()) {}

  void Step(const Numbers& gradient) {
    ++updates_;
    for (size_t i = 0; i < w.size(); ++i) {
      if (!std::isfinite(gradient[i])) continue;
      if (spec_.kind == "sgd") {
        Descend(i, gradient[i]);
      } else {
        Adapt(i, gradient[i]);
      }
    }
  }

 private:
  void Descend(size_t i, float g) {
    g += static_cast<float>(*spec_.weight_decay) * w[i];
    const auto momentum = static_cast<float>(spec_.momentum);
    const float b = momentum * first[i] + g;
    w[i] -= kLr * (spec_.nesterov ? g + momentum * b : b);
    first[i] = ToNearest(b);
  }

  void Adapt(size_t i, float g) {
    const double t = static_cast<double>(updates_);
    const auto new1 = static_cast<float>(1 - spec_.beta1);
    const auto new2 = static_cast<float>(1 - spec_.beta2);
    const auto beta2 = static_cast<float>(1 - double{new2});
    const auto decay = static_cast<float>(*spec_.weight_decay);
    double rate = kLr, root = std::sqrt(1 - std::pow(1 - double{new2}, t));
    double correction = 1 - std::pow(1 - double{new1}, t);
    if (spec_.kind == "adamw_hf") {  // all corrections are in the rate
      rate = static_cast<float>(rate * std::sqrt(1 - std::pow(spec_.beta2, t)) /
                                (1 - std::pow(spec_.beta1, t)));
      root = correction = 1;
    }
    if (spec_.kind == "adam") g += decay * w[i];
    const float m = first[i] + new1 * (g - first[i]);
    const float v = beta2 * square[i] + new2 * (g * g);
    const float divisor =
        std::sqrt(v) / static_cast<float>(root) + static_cast<float>(spec_.eps);
    float start = w[i];
    if (spec_.kind == "adamw") {
      start *= static_cast<float>(1 - rate * double{decay});
    }
    float moved = start - static_cast<float>(rate / correction) * (m / divisor);
    if (spec_.kind == "adamw_hf") moved -= moved * (kLr * decay);
    w[i] = moved;
    first[i] = ToNearest(m);
    square[i] = Drawn16(v, kSeedOfRun, updates_, static_cast<int64_t>(i));
  }

  OptimizerSpec spec_;
  int64_t updates_ = 0;

 public:
  Numbers w, first, square;
};

OptimizerSpec Kept16(const char* kind) {
  return {.kind = kind, .weight_decay = 0.125, .moments = "bfloat16"};
}

std::vector<OptimizerSpec> SpecsIn16Bits() {
  std::vector<OptimizerSpec> specs = {Kept16("adam"), Kept16("adamw"),
                                      Kept16("adamw_hf"), Kept16("sgd"),
                                      Kept16("sgd")};
  specs[3].momentum = specs[4].momentum = 0.875;
  specs[4].nesterov = true;
  return specs;
}

void ExpectState(const Trained& got, const Loops& want, bool adaptive,
                 const std::string& what) {
  EXPECT_TRUE(Identical(got.At("w"), TensorOf(want.w))) << what;
  const Tensor& first = got.At(adaptive ? "w.exp_avg" : "w.momentum_buffer");
  EXPECT_EQ(first.dtype(), DType::kBFloat16);
  EXPECT_TRUE(Identical(ConvertTo(first, DType::kFloat), TensorOf(want.first)))
      << what;
  if (!adaptive) return;
  const Tensor& square = got.At("w.exp_avg_sq");
  EXPECT_EQ(square.dtype(), DType::kBFloat16);
  EXPECT_TRUE(
      Identical(ConvertTo(square, DType::kFloat), TensorOf(want.square)))
      << what;
}

// More elements than a kernel decodes at a time. The third step is skipped.
TEST(Moments, FollowTheFormulas) {
  constexpr size_t kElements = 1100;
  for (const OptimizerSpec& spec : SpecsIn16Bits()) {
    for (bool joins : {false, true}) {
      const Numbers start = Drawn(1, kElements);
      Trained trained(spec, TensorOf(start), joins);
      Loops loops(spec, start);
      for (uint64_t step = 0; step < 5; ++step) {
        Numbers gradient = Drawn(2 + step, kElements);
        gradient[7] = 0;
        if (step != 2) {
          loops.Step(gradient);
        } else {
          gradient[3] = std::numeric_limits<float>::infinity();
        }
        trained.Step(gradient);
        ExpectState(trained, loops, spec.kind != "sgd",
                    Concat(spec.kind, ", joined ", joins, ", step ", step));
      }
      EXPECT_EQ(IntAt(trained.At("optimizer.skipped"), 0), 1);
    }
  }
}

// With released gradients an element whose gradient is not finite keeps its
// bits, and a step whose condition fails keeps all bits.
TEST(Moments, ReleasedGradientsKeepElements) {
  constexpr size_t kElements = 600;
  for (OptimizerSpec spec : SpecsIn16Bits()) {
    spec.release_gradients = true;
    for (bool joins : {false, true}) {
      const Numbers start = Drawn(1, kElements);
      Trained trained(spec, TensorOf(start), joins);
      Loops loops(spec, start);
      for (uint64_t step = 0; step < 3; ++step) {
        Numbers gradient = Drawn(2 + step, kElements);
        gradient[5] = std::numeric_limits<float>::infinity();
        gradient[step + 517] = std::numeric_limits<float>::quiet_NaN();
        loops.Step(gradient);
        trained.Step(gradient);
        trained.Step(Drawn(20 + step, kElements), false);
        ExpectState(trained, loops, spec.kind != "sgd",
                    Concat(spec.kind, ", joined ", joins, ", step ", step));
      }
    }
  }
}

// To the nearest, a mean of squares of 1 would stay where it is: a step takes
// less than half a unit in the last place. The bounds are some five standard
// errors of the draws.
TEST(Moments, MeansOfSquaresFollowSmallerGradients) {
  constexpr size_t kElements = 1024;
  constexpr int kSteps = 100;
  for (const char* kind : {"adam", "adamw", "adamw_hf"}) {
    Trained trained(Kept16(kind), TensorOf(Numbers(kElements, 1)), true);
    trained.Set("w.exp_avg_sq",
                ConvertTo(TensorOf(Numbers(kElements, 1)), DType::kBFloat16));
    // Adam's gradient is its decay, an eighth of the weight.
    const bool decays = kind == std::string("adam");
    for (int step = 0; step < kSteps; ++step) {
      trained.Step(Numbers(kElements, decays ? 0 : 0.1f));
    }
    const Tensor v = ConvertTo(trained.At("w.exp_avg_sq"), DType::kDouble);
    const double kept = std::pow(0.999, kSteps);
    const double expected = kept + (decays ? 0.0156 : 0.01) * (1 - kept);
    double mean = 0, furthest = 0;
    for (int64_t i = 0; i < v.size(); ++i) {
      mean += DoubleAt(v, i) / static_cast<double>(v.size());
      furthest = std::max(furthest, std::fabs(DoubleAt(v, i) - expected));
    }
    EXPECT_NEAR(mean, expected, 0.003) << kind;
    EXPECT_LT(furthest, 0.09) << kind;
  }
}

TEST(Moments, TheSeedIsStateAndDecidesTheDraws) {
  const Numbers start = Drawn(1, 2000), gradient = Drawn(2, 2000);
  Tensor squares[3];
  const uint64_t seeds[] = {1, 1, 2};
  for (size_t i = 0; i < 3; ++i) {
    Trained trained(Kept16("adamw"), TensorOf(start), true, seeds[i]);
    for (int step = 0; step < 2; ++step) trained.Step(gradient);
    EXPECT_EQ(IntAt(trained.At("optimizer.seed"), 0),
              static_cast<int64_t>(seeds[i]));
    squares[i] = trained.At("w.exp_avg_sq").Clone();
  }
  EXPECT_TRUE(Identical(squares[0], squares[1]));
  EXPECT_FALSE(Identical(squares[0], squares[2]));
}

TEST(Moments, ALargeSeedLosesItsSign) {
  Trained trained(Kept16("adamw"), TensorOf({1, 2}), true, ~uint64_t{0});
  trained.Step({1, 2});
  EXPECT_EQ(IntAt(trained.At("optimizer.seed"), 0),
            std::numeric_limits<int64_t>::max());
}

// State goes on from wherever it stands: what a run needs is in it.
TEST(Moments, ARunThatGoesOnHasTheSameBits) {
  for (const OptimizerSpec& spec : SpecsIn16Bits()) {
    const Numbers start = Drawn(1, 300);
    Trained whole(spec, TensorOf(start), true);
    for (uint64_t step = 0; step < 4; ++step) whole.Step(Drawn(2 + step, 300));
    Trained begun(spec, TensorOf(start), true);
    for (uint64_t step = 0; step < 2; ++step) begun.Step(Drawn(2 + step, 300));
    // Another seed, which the state replaces.
    Trained resumed(spec, TensorOf(Numbers(300, 9)), false, 77);
    for (const auto& [name, tensor] : begun.state()) {
      resumed.Set(name, tensor.Clone());
    }
    for (uint64_t step = 2; step < 4; ++step) {
      resumed.Step(Drawn(2 + step, 300));
    }
    ASSERT_EQ(resumed.state().size(), whole.state().size());
    for (const auto& [name, tensor] : whole.state()) {
      EXPECT_TRUE(Identical(resumed.At(name), tensor)) << spec.kind << name;
    }
  }
}

TEST(Moments, NothingIsDrawnWithoutAMeanOfSquaresInFewerBits) {
  auto state_of = [](OptimizerSpec spec, DType dtype) {
    Trained trained(spec, ConvertTo(TensorOf({1, 2, 3}), dtype), false);
    trained.StepOn(ConvertTo(TensorOf({1, 2, 3}), dtype));
    std::map<std::string, DType> types;
    for (const auto& [name, tensor] : trained.state()) {
      types[name] = tensor.dtype();
    }
    return types;
  };
  const OptimizerSpec momentum = SpecsIn16Bits()[3];
  EXPECT_EQ(
      state_of(momentum, DType::kFloat),
      (std::map<std::string, DType>{{"optimizer.skipped", DType::kInt64},
                                    {"optimizer.step", DType::kInt64},
                                    {"w", DType::kFloat},
                                    {"w.momentum_buffer", DType::kBFloat16}}));
  // Parameters of double keep doubles.
  EXPECT_EQ(state_of(Kept16("adamw"), DType::kDouble),
            (std::map<std::string, DType>{{"optimizer.skipped", DType::kInt64},
                                          {"optimizer.step", DType::kInt64},
                                          {"w", DType::kDouble},
                                          {"w.exp_avg", DType::kDouble},
                                          {"w.exp_avg_sq", DType::kDouble}}));
  EXPECT_FALSE(
      state_of({.kind = "adamw"}, DType::kFloat).contains("optimizer.seed"));
  EXPECT_EQ(state_of({.kind = "adamw"}, DType::kFloat).at("w.exp_avg"),
            DType::kFloat);
}

TEST(Moments, OtherFormatsAreRefused) {
  EXPECT_EQ(MomentFormats(),
            (std::vector<std::string>{"float32", "bfloat16", "fp8"}));
  for (const std::string& format : MomentFormats()) {
    EXPECT_NO_THROW(CheckOptimizer({.moments = format}));
  }
  for (const char* format : {"", "float16", "fp4", "BFLOAT16"}) {
    try {
      CheckOptimizer({.moments = format});
      ADD_FAILURE() << format;
    } catch (const Error& error) {
      EXPECT_EQ(
          std::string(error.what()),
          Concat("expected moments float32, bfloat16 or fp8, got ", format));
    }
  }
}

// The places of a part reach the op.
TEST(Moments, APartSaysWhereItsElementsLie) {
  Graph graph;
  graph.opset = 24;
  const Tensor start = TensorOf({1, 2, 3, 4});
  Value* w = graph.AddInitializer("w", start);
  Value* dw = graph.AddInput("dw", DType::kFloat, start.shape());
  ParameterGradient part{w, dw, "w"};
  part.places = {.shift = 3, .run = 2, .stride = 10, .begin = 4};
  AppendOptimizer(graph, {part}, Kept16("adamw"), {}, nullptr, {}, {}, nullptr,
                  5);
  int found = 0;
  for (const Node& node : graph.nodes()) {
    if (!node.IsOurs("RoundStochastic")) continue;
    ++found;
    EXPECT_EQ(node.Int("shift", -1), 3);
    EXPECT_EQ(node.Int("row", -1), 2);
    EXPECT_EQ(node.Int("stride", -1), 10);
    EXPECT_EQ(node.Int("begin", -1), 4);
    // FNV-1a of w.exp_avg_sq is 5D55758085E1DE01.
    EXPECT_EQ(node.Int("stream", -1), 0x85E1DE01);
    EXPECT_EQ(node.in(1)->name, "optimizer.seed");
    EXPECT_EQ(node.in(2)->name, "optimizer.step.next");
  }
  EXPECT_EQ(found, 1);
}

}  // namespace
}  // namespace onnx_fp8
