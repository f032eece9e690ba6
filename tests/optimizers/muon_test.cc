// SPDX-License-Identifier: Apache-2.0
//
// Muon beside PyTorch's, and beside its formulas for diagonal matrices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "data/safetensors.h"
#include "optimizers/optimizer.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

// One parameter "w" whose gradient "dw" is fed.
class TrainedMatrix {
 public:
  TrainedMatrix(const OptimizerSpec& spec, const Tensor& start,
                bool transposed = false, bool of_rest = false)
      : graph_(std::make_shared<Graph>()), cpu_(MakeCpuProvider()) {
    graph_->opset = 24;
    Value* w = graph_->AddInitializer("w", start);
    w->role = Role::kParameter;
    Value* dw = graph_->AddInput("dw", start.dtype(), start.shape());
    Value* good = graph_->AddInput("good", DType::kBool, Shape{});
    ParameterGradient parameter{w, dw, "w"};
    parameter.transposed = transposed;
    parameter.of_rest = of_rest;
    AppendOptimizer(*graph_, {parameter}, spec, {}, nullptr, {}, {}, good);
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
    lr_ = Tensor::Scalar(static_cast<float>(spec.lr));
  }

  void Step(const Tensor& gradient, bool good = true) {
    executor_->Run(
        {{"dw", gradient}, {"good", Tensor::Scalar(good)}, {"lr", lr_}},
        state_);
  }

  const TensorMap& state() const { return state_; }
  const Tensor& At(const std::string& name) const { return state_.at(name); }

 private:
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_;
  std::unique_ptr<Executor> executor_;
  Tensor lr_;
  TensorMap state_;
};

OptimizerSpec MuonSpec() { return {.kind = "muon", .lr = 0.02}; }

struct MuonCase {
  const char* name;
  OptimizerSpec spec;
};

// The settings of data/make_muon.py.
std::vector<MuonCase> MuonCases() {
  std::vector<MuonCase> cases = {{"muon", MuonSpec()},
                                 {"plain", MuonSpec()},
                                 {"coefficients", MuonSpec()}};
  OptimizerSpec& plain = cases[1].spec;
  plain.lr = 0.05;
  plain.weight_decay = 0.2;
  plain.muon.momentum = 0.8;
  plain.muon.nesterov = false;
  plain.muon.steps = 3;
  plain.muon.adjust_lr = "match_rms_adamw";
  OptimizerSpec& other = cases[2].spec;
  other.lr = 0.1;
  other.weight_decay = 0;
  other.muon.steps = 2;
  other.muon.coefficients = {1.5, -0.5, 0};
  return cases;
}

// Matrix i of a tensor of several.
Tensor MatrixOf(const Tensor& all, int64_t i, DType dtype) {
  const int64_t n = all.dim(1) * all.dim(2);
  const std::vector<double> numbers(all.data<double>() + i * n,
                                    all.data<double>() + (i + 1) * n);
  return ConvertTo(Tensor::From<double>({all.dim(1), all.dim(2)}, numbers),
                   dtype);
}

void ExpectClose(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.shape(), want.shape());
  for (int64_t i = 0; i < got.size(); ++i) {
    EXPECT_NEAR(DoubleAt(got, i), DoubleAt(want, i), tolerance) << i;
  }
}

// Attributes are floats, so doubles have their digits.
TEST(Muon, FollowsPyTorch) {
  const TensorMap trace =
      ReadSafetensors(SourcePath("tests/optimizers/data/muon.safetensors"));
  for (const auto& [name, spec] : MuonCases()) {
    for (const auto& [dtype, tolerance] :
         {std::pair(DType::kDouble, 1e-7), std::pair(DType::kFloat, 4e-6)}) {
      for (const char* i : {"0", "1", "2"}) {
        SCOPED_TRACE(Concat(name, " ", i, " ", Name(dtype)));
        auto at = [&](const char* what) {
          return trace.at(Concat(name, ".", what, ".", i));
        };
        TrainedMatrix w(spec, ConvertTo(at("start"), dtype));
        for (int64_t step = 0; step < at("grads").dim(0); ++step) {
          w.Step(MatrixOf(at("grads"), step, dtype));
          ExpectClose(w.At("w"), MatrixOf(at("params"), step, dtype),
                      tolerance);
          ExpectClose(w.At("w.momentum_buffer"),
                      MatrixOf(at("buffers"), step, dtype), tolerance);
        }
      }
    }
  }
}

// x = diag(3, 4) / 5 stays diagonal: each number goes its own way.
TEST(Muon, MovesADiagonalByItsPolynomial) {
  OptimizerSpec spec = MuonSpec();
  spec.muon.momentum = 0;
  spec.muon.steps = 1;
  spec.weight_decay = 0.5;
  TrainedMatrix w(spec, Tensor::From<double>({2, 2}, {1, 2, 3, 4}));
  w.Step(Tensor::From<double>({2, 2}, {3, 0, 0, 4}));
  auto moved = [](double x) {
    return 3.4445 * x - 4.775 * x * x * x + 2.0315 * x * x * x * x * x;
  };
  const double keep = 1 - 0.02 * 0.5;
  ExpectClose(
      w.At("w"),
      Tensor::From<double>({2, 2}, {keep - 0.02 * moved(0.6), 2 * keep,
                                    3 * keep, 4 * keep - 0.02 * moved(0.8)}),
      1e-7);
}

// PyTorch's shape decides, which the graph may hold transposed.
TEST(Muon, TheRateFollowsPyTorchsShape) {
  const Tensor start = Tensor::Zeros(DType::kDouble, {2, 8});
  std::vector<double> numbers(16);
  for (size_t i = 0; i < 16; ++i) numbers[i] = RandomUniform(1, i) - 0.5;
  const Tensor gradient = Tensor::From<double>({2, 8}, numbers);
  TrainedMatrix as_it_is(MuonSpec(), start), turned(MuonSpec(), start, true);
  as_it_is.Step(gradient);
  turned.Step(gradient);
  for (int64_t i = 0; i < 16; ++i) {
    EXPECT_NEAR(DoubleAt(turned.At("w"), i), 2 * DoubleAt(as_it_is.At("w"), i),
                1e-9);
  }
}

TEST(Muon, LeavesTheRestToAdamW) {
  const Tensor vector = Tensor::From<float>({3}, {1, 2, 3});
  TrainedMatrix bias(MuonSpec(), vector);
  bias.Step(vector);
  EXPECT_TRUE(bias.state().contains("w.exp_avg_sq"));
  EXPECT_FALSE(bias.state().contains("w.momentum_buffer"));
  const Tensor table = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  TrainedMatrix ours(MuonSpec(), table, false, true);
  TrainedMatrix adamw({.lr = 0.02, .weight_decay = 0.1}, table);
  ours.Step(table);
  adamw.Step(table);
  ExpectClose(ours.At("w"), adamw.At("w"), 0);
  EXPECT_EQ(
      MomentsOf(MuonSpec()),
      (std::vector<std::string>{"momentum_buffer", "exp_avg", "exp_avg_sq"}));
}

// One element would spoil the whole matrix, so all of it keeps its values.
TEST(Muon, AStepThatIsNotFiniteChangesNothing) {
  const Tensor start = Tensor::From<float>({2, 2}, {1, 2, 3, 4});
  for (bool releases : {false, true}) {
    OptimizerSpec spec = MuonSpec();
    spec.release_gradients = releases;
    TrainedMatrix w(spec, start);
    w.Step(start);
    const Tensor weight = w.At("w").Clone();
    const Tensor buffer = w.At("w.momentum_buffer").Clone();
    for (float bad : {std::numeric_limits<float>::infinity(),
                      std::numeric_limits<float>::quiet_NaN()}) {
      w.Step(Tensor::From<float>({2, 2}, {1, bad, 1, 1}));
      ExpectClose(w.At("w"), weight, 0);
      ExpectClose(w.At("w.momentum_buffer"), buffer, 0);
    }
    w.Step(start, false);
    ExpectClose(w.At("w"), weight, 0);
    ExpectClose(w.At("w.momentum_buffer"), buffer, 0);
  }
}

TEST(Muon, KeepsItsMomentumInFewerBytes) {
  Tensor start = Tensor::Allocate(DType::kFloat, {64, 64});
  for (int64_t i = 0; i < start.size(); ++i) {
    start.data<float>()[i] = RandomUniform(3, static_cast<uint64_t>(i)) - 0.5f;
  }
  TrainedMatrix floats(MuonSpec(), start);
  floats.Step(start);
  for (const auto& [format, dtype] : {std::pair("bfloat16", DType::kBFloat16),
                                      std::pair("fp8", DType::kE4M3)}) {
    OptimizerSpec spec = MuonSpec();
    spec.moments = format;
    TrainedMatrix w(spec, start);
    w.Step(start);
    // The first update reads a momentum of 0 in any format.
    ExpectClose(w.At("w"), floats.At("w"), 0);
    EXPECT_EQ(w.At("w.momentum_buffer").dtype(), dtype);
    // It is rounded to the nearest: nothing is drawn.
    EXPECT_FALSE(w.state().contains("optimizer.seed"));
  }
}

TEST(Muon, RefusesSettings) {
  auto message = [](auto change) {
    OptimizerSpec spec = MuonSpec();
    change(spec.muon);
    try {
      CheckOptimizer(spec);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("none");
  };
  using M = MuonSettings;
  EXPECT_EQ(message([](M&) {}), "none");
  EXPECT_NE(message([](M& m) { m.momentum = -1; }).find("momentum of Muon"),
            std::string::npos);
  EXPECT_NE(message([](M& m) { m.eps = -1; }).find("eps of Muon"),
            std::string::npos);
  EXPECT_NE(message([](M& m) { m.steps = 100; }).find("0 to 99 steps"),
            std::string::npos);
  EXPECT_NE(message([](M& m) { m.coefficients[1] = NAN; }).find("finite"),
            std::string::npos);
  EXPECT_NE(message([](M& m) { m.adjust_lr = "x"; }).find("match_rms_adamw"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
