// SPDX-License-Identifier: Apache-2.0
//
// Moments that are kept as FP8 codes, beside loops over the formulas.
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

// The last block of a row has two elements.
constexpr int64_t kCodedRows = 33, kCodedColumns = 130;
constexpr int64_t kCodedSize = kCodedRows * kCodedColumns;
constexpr int64_t kSeedOfCodes = 0x0123456789ABCDEF;
constexpr float kRateOfCodes = 0.015625f;

using CodedRow = std::vector<float>;

Tensor CodedMatrix(const CodedRow& numbers) {
  return Tensor::From<float>({kCodedRows, kCodedColumns}, numbers);
}

CodedRow RandomRow(uint64_t seed) {
  CodedRow numbers(kCodedSize);
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = RandomUniform(seed, i) - 0.5f;
  }
  return numbers;
}

// A parameter "w" whose gradient is fed.
class TrainedCodes {
 public:
  TrainedCodes(const OptimizerSpec& spec, const CodedRow& start, bool joins)
      : graph_(std::make_shared<Graph>()), cpu_(MakeCpuProvider()) {
    graph_->opset = 24;
    Value* w = graph_->AddInitializer("w", CodedMatrix(start));
    w->role = Role::kParameter;
    Value* dw = graph_->AddInput("dw", w->dtype, w->shape);
    Value* good = graph_->AddInput("good", DType::kBool, Shape{});
    AppendOptimizer(*graph_, {{w, dw, "w"}}, spec, {}, nullptr, {}, {}, good,
                    kSeedOfCodes);
    if (joins) JoinMoments(*graph_, CpuKernels());
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
  }

  void Step(const CodedRow& gradient, bool good = true) {
    executor_->Run({{"dw", CodedMatrix(gradient)},
                    {"good", Tensor::Scalar(good)},
                    {"lr", Tensor::Scalar(kRateOfCodes)}},
                   state_);
  }

  const Tensor& At(const std::string& name) const { return state_.at(name); }
  float Weight(int64_t i) const { return At("w").data<float>()[i]; }
  uint8_t Code(const std::string& name, int64_t i) const {
    return At(name).data<E4M3>()[i].bits;
  }
  TensorMap Copy() const {
    TensorMap copy;
    for (const auto& [name, tensor] : state_) copy[name] = tensor.Clone();
    return copy;
  }

 private:
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_;
  std::unique_ptr<Executor> executor_;
  TensorMap state_;
};

// One moment in a loop over its blocks, in doubles but for quotients.
struct LoopCodes {
  std::vector<uint8_t> codes = std::vector<uint8_t>(kCodedSize);
  CodedRow scales = CodedRow(kCodedRows * 2);

  CodedRow Decoded(bool is_square) const {
    CodedRow x(kCodedSize);
    for (size_t i = 0; i < x.size(); ++i) {
      x[i] = Decode(E4M3{codes[i]}) * scales[ScaleOf(i)];
      if (is_square) x[i] *= x[i];
    }
    return x;
  }

  // `update`: of the draws of w.exp_avg_sq; 0: to the nearest.
  void Encode(CodedRow x, int64_t update) {
    if (update > 0) {
      for (float& v : x) v = std::sqrt(v);
    }
    std::ranges::fill(scales, 0.0f);
    for (size_t i = 0; i < x.size(); ++i) {
      float& amax = scales[ScaleOf(i)];
      amax = std::max(amax, std::fabs(x[i]));
    }
    for (float& scale : scales) scale = std::max(scale / 448, 0x1p-126f);
    const auto stream = static_cast<uint32_t>(Hash("w.exp_avg_sq"));
    const uint32_t key = DrawKey(kSeedOfCodes, stream, update);
    for (size_t i = 0; i < x.size(); ++i) {
      float y = x[i] / scales[ScaleOf(i)];
      if (update > 0 && y > 0) {
        const auto place = static_cast<int64_t>(i);
        const uint32_t draw =
            DrawAt(DrawKeyOf(key, place), static_cast<uint32_t>(place));
        y = Drawn(y, draw);
      }
      codes[i] = EncodeE4M3(y).bits;
    }
  }

 private:
  static size_t ScaleOf(size_t i) {
    return i / kCodedColumns * 2 + i % kCodedColumns / 128;
  }
  static float Drawn(float quotient, uint32_t draw) {
    const double y = std::max(double{quotient}, 0x1p-9);
    const double ulp = std::ldexp(1, std::max(std::ilogb(y), -6) - 3);
    const double q = std::floor(y / ulp + draw / 65536.0) * ulp;
    return static_cast<float>(std::min(q, 448.0));
  }
};

// The optimizer in loops, in the order of the formulas in
// graph/schemas/optimizers.cc.
class LoopedCodes {
 public:
  LoopedCodes(const OptimizerSpec& spec, const CodedRow& start)
      : w(start), spec_(spec) {}

  void Step(const CodedRow& gradient) {
    ++updates_;
    CodedRow m = first.Decoded(false), v = second.Decoded(true);
    for (size_t i = 0; i < w.size(); ++i) {
      if (spec_.kind == "sgd") {
        m[i] = static_cast<float>(spec_.momentum) * m[i] + gradient[i];
        w[i] -= kRateOfCodes * m[i];
      } else {
        Adapt(gradient[i], w[i], m[i], v[i]);
      }
    }
    first.Encode(m, 0);
    if (spec_.kind != "sgd") second.Encode(v, updates_);
  }

  CodedRow w;
  LoopCodes first, second;

 private:
  void Adapt(float g, float& p, float& m, float& v) const {
    const auto t = static_cast<double>(updates_);
    const auto new1 = static_cast<float>(1 - spec_.beta1);
    const auto new2 = static_cast<float>(1 - spec_.beta2);
    double rate = kRateOfCodes,
           root = std::sqrt(1 - std::pow(1 - double{new2}, t));
    double correction = 1 - std::pow(1 - double{new1}, t);
    if (spec_.kind == "adamw_hf") {  // all corrections are in the rate
      rate = static_cast<float>(rate * std::sqrt(1 - std::pow(spec_.beta2, t)) /
                                (1 - std::pow(spec_.beta1, t)));
      root = correction = 1;
    }
    m = m + new1 * (g - m);
    v = static_cast<float>(1 - double{new2}) * v + new2 * (g * g);
    const float divisor =
        std::sqrt(v) / static_cast<float>(root) + static_cast<float>(spec_.eps);
    p -= static_cast<float>(rate / correction) * (m / divisor);
  }

  OptimizerSpec spec_;
  int64_t updates_ = 0;
};

OptimizerSpec CodedSpec(const char* kind) {
  return {.kind = kind, .weight_decay = 0, .moments = "fp8"};
}

void ExpectCodes(const TrainedCodes& got, const std::string& name,
                 const LoopCodes& want) {
  const Tensor& codes = got.At(name);
  ASSERT_EQ(codes.dtype(), DType::kE4M3);
  int64_t other = 0;
  for (size_t i = 0; i < want.codes.size(); ++i) {
    other += codes.data<E4M3>()[i].bits != want.codes[i];
  }
  EXPECT_EQ(other, 0) << name;
  EXPECT_TRUE(Identical(
      got.At(name + ".scale"),
      Tensor::From<float>({kCodedRows, kCodedColumns / 128 + 1}, want.scales)))
      << name;
}

// The third step is skipped.
TEST(MomentCodes, FollowTheFormulas) {
  for (const char* kind : {"adamw", "adamw_hf", "sgd"}) {
    OptimizerSpec spec = CodedSpec(kind);
    if (kind == std::string("sgd")) spec.momentum = 0.875;
    for (bool joins : {false, true}) {
      SCOPED_TRACE(Concat(kind, ", joined ", joins));
      TrainedCodes trained(spec, RandomRow(1), joins);
      LoopedCodes loops(spec, RandomRow(1));
      for (uint64_t step = 0; step < 4; ++step) {
        CodedRow gradient = RandomRow(2 + step);
        std::fill_n(gradient.begin() + kCodedColumns, 128, 0.0f);
        if (step != 2) {
          loops.Step(gradient);
        } else {
          gradient[3] = std::numeric_limits<float>::infinity();
        }
        trained.Step(gradient);
      }
      EXPECT_TRUE(Identical(trained.At("w"), CodedMatrix(loops.w)));
      const bool adapts = kind != std::string("sgd");
      ExpectCodes(trained, adapts ? "w.exp_avg" : "w.momentum_buffer",
                  loops.first);
      if (adapts) ExpectCodes(trained, "w.exp_avg_sq", loops.second);
    }
  }
}

TEST(MomentCodes, ASkippedStepKeepsAllBits) {
  for (bool joins : {false, true}) {
    TrainedCodes trained(CodedSpec("adamw"), RandomRow(1), joins);
    trained.Step(RandomRow(2));
    TensorMap before = trained.Copy();
    trained.Step(RandomRow(3), false);
    TensorMap after = trained.Copy();
    for (TensorMap* state : {&before, &after}) {
      state->erase("optimizer.skipped");
    }
    for (const auto& [name, tensor] : before) {
      EXPECT_TRUE(Identical(after.at(name), tensor)) << name;
    }
  }
}

// Beside an outlier the quotients of a root and of a mean lie between 0 and the
// least code, and the root is rounded up. Were some roots rounded to 0, the
// last step would move their weights by the rate times some thousands.
TEST(MomentCodes, AnOutlierMakesNoUpdateLarge) {
  TrainedCodes trained(CodedSpec("adamw"), RandomRow(1), true);
  CodedRow gradient(kCodedSize, 1e-3f);
  for (int64_t i = 0; i < kCodedSize; i += kCodedColumns) {
    gradient[static_cast<size_t>(i)] = 350;
  }
  for (int step = 0; step < 10; ++step) trained.Step(gradient);
  const Tensor before = trained.At("w").Clone();
  for (float& g : gradient) g *= 1e-4f;
  trained.Step(gradient);
  for (int64_t i = 0; i < kCodedSize; ++i) {
    const float moved = trained.Weight(i) - before.data<float>()[i];
    EXPECT_LT(std::fabs(moved), 1.1f * kRateOfCodes) << i;
    EXPECT_NE(trained.Code("w.exp_avg_sq", i), 0) << i;
  }
}

// The square of a finite gradient may be infinite. As with floats its weight
// stands still from then on; other means of squares don't notice.
TEST(MomentCodes, AnInfiniteSquareLeavesItsBlockAlone) {
  constexpr int64_t kLost = 5;
  CodedRow gradient = RandomRow(2), steep = gradient;
  gradient[kLost] = 0;
  steep[kLost] = 1e20f;
  OptimizerSpec spec = CodedSpec("adamw");
  spec.release_gradients = true;  // the norm of the gradients is infinite
  TrainedCodes other(spec, RandomRow(1), true);
  other.Step(gradient);
  TrainedCodes trained(spec, RandomRow(1), true);
  trained.Step(steep);
  for (int64_t i = 0; i < kCodedSize; ++i) {
    EXPECT_EQ(trained.Code("w.exp_avg_sq", i),
              i == kLost ? 0x7F : other.Code("w.exp_avg_sq", i))
        << i;
  }
  const float still = trained.Weight(kLost);
  for (uint64_t step = 3; step < 6; ++step) trained.Step(RandomRow(step));
  EXPECT_EQ(trained.Weight(kLost), still);
  for (int64_t i = 0; i < kCodedSize; ++i) {
    EXPECT_TRUE(std::isfinite(trained.Weight(i))) << i;
  }
}

// An element whose gradient is not finite keeps its weight; its moments are
// rounded again with their block.
TEST(MomentCodes, ReleasedGradientsKeepAWeight) {
  OptimizerSpec spec = CodedSpec("adamw");
  spec.release_gradients = true;
  TensorMap ends[2];
  for (bool joins : {false, true}) {
    TrainedCodes trained(spec, RandomRow(1), joins);
    trained.Step(RandomRow(2));
    CodedRow gradient = RandomRow(3);
    gradient[131] = std::numeric_limits<float>::quiet_NaN();
    const float before = trained.Weight(131);
    trained.Step(gradient);
    EXPECT_EQ(trained.Weight(131), before);
    EXPECT_NE(trained.Code("w.exp_avg", 131), 0x7F);
    ends[joins] = trained.Copy();
  }
  for (const auto& [name, tensor] : ends[0]) {
    EXPECT_TRUE(Identical(ends[1].at(name), tensor)) << name;
  }
}

// Which moments are codes is a matter of the whole tensor and of its parts.
TEST(MomentCodes, SomeMomentsStayFloats) {
  struct Case {
    Shape shape, whole;
    bool cuts_blocks, codes;
  };
  const Case cases[] = {
      {{64, 64}, {}, false, true},          {{64, 63}, {}, false, false},
      {{4, 8, 128}, {}, false, true},       {{8192}, {}, false, false},
      {{16, 128}, {64, 128}, false, true},  {{64, 64}, {64, 128}, true, false},
      {{256, 256, 1, 1}, {}, false, false}, {{256, 31}, {}, false, false},
      {{256, 32}, {}, false, true}};
  for (const Case& c : cases) {
    for (DType dtype : {DType::kFloat, DType::kDouble}) {
      Graph graph;
      graph.opset = 24;
      Value* w = graph.AddInitializer("w", Tensor::Zeros(dtype, c.shape));
      Value* dw = graph.AddInput("dw", dtype, c.shape);
      AppendOptimizer(graph,
                      {{.param = w,
                        .grad = dw,
                        .fqn = "w",
                        .whole = c.whole,
                        .cuts_blocks = c.cuts_blocks}},
                      CodedSpec("adamw"));
      const bool codes = c.codes && dtype == DType::kFloat;
      for (const char* moment : {"w.exp_avg", "w.exp_avg_sq"}) {
        const Value* kept = graph.Find(moment);
        EXPECT_EQ(kept->dtype, codes ? DType::kE4M3 : dtype);
        EXPECT_EQ(kept->role, Role::kMoment);
        const Value* scale = graph.Find(Concat(moment, kMomentScale));
        ASSERT_EQ(scale != nullptr, codes) << ToString(c.shape);
        if (!codes) continue;
        EXPECT_EQ(scale->role, Role::kMoment);
        Shape blocks = c.shape;
        blocks.back() = (blocks.back() + 127) / 128;
        EXPECT_EQ(*scale->shape, blocks);
      }
      EXPECT_EQ(graph.Find("optimizer.seed") != nullptr, codes);
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
