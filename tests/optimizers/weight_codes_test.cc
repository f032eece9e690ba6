// SPDX-License-Identifier: Apache-2.0
//
// FP8 codes of new parameters: an update whose kernel makes them gives the bits
// of a quantizer behind it.
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "base/check.h"
#include "base/random.h"
#include "graph/builder.h"
#include "optimizers/optimizer.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/join_masters.h"
#include "providers/passes/join_moments.h"
#include "providers/passes/join_weight_codes.h"
#include "providers/run/executor.h"
#include "training/step/store_masters.h"

namespace onnx_fp8 {
namespace {

// More elements than a kernel decodes at a time. The last block of a row has
// two elements.
const Shape kShapeOfCodes = {33, 130};

Tensor FloatsOfCodes(uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, kShapeOfCodes);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return t;
}

struct CodeCase {
  const char* kind;
  const char* moments;
  const char* master;
  DType correction, round_to, to;
};

const CodeCase kCodeCases[] = {
    {"adamw", "float32", "float32", DType::kUndefined, DType::kFloat,
     DType::kE4M3},
    {"adamw", "bfloat16", "split8", DType::kInt8, DType::kFloat, DType::kE4M3},
    {"adam", "fp8", "bfloat16", DType::kUndefined, DType::kFloat, DType::kE5M2},
    {"adamw", "fp8", "float32", DType::kUndefined, DType::kBFloat16,
     DType::kE4M3},
    {"sgd", "float32", "split", DType::kInt16, DType::kFloat16, DType::kE4M3},
    {"sgd", "float32", "float32", DType::kUndefined, DType::kFloat,
     DType::kE5M2}};

// The update of a parameter "w" and a quantizer of the new one.
class QuantizedUpdate {
 public:
  QuantizedUpdate(const CodeCase& c, bool joins)
      : graph_(std::make_shared<Graph>()), cpu_(MakeCpuProvider()) {
    graph_->opset = 24;
    Value* w = graph_->AddInitializer("w", FloatsOfCodes(1));
    w->role = Role::kParameter;
    Value* dw = graph_->AddInput("dw", DType::kFloat, kShapeOfCodes);
    Value* good = graph_->AddInput("good", DType::kBool, Shape{});
    OptimizerSpec spec = {
        .kind = c.kind, .weight_decay = 0.125, .moments = c.moments};
    spec.master = c.master;
    spec.release_gradients = true;
    const OptimizerValues values = AppendOptimizer(
        *graph_, {{w, dw, "w"}}, spec, {}, nullptr, {}, {}, good, 7);
    if (values.update_amax) graph_->outputs = {values.update_amax};
    if (spec.master != "float32") {
      StoreMasters(
          *graph_, {w},
          {.correction = c.correction,
           .state_name = [](const std::string& name) { return name; },
           .places = [](const std::string&) { return ElementPlaces(); },
           .seed = graph_->Find("optimizer.seed"),
           .number = graph_->Find("optimizer.step.next")});
      state_["w"] = ConvertTo(FloatsOfCodes(1), DType::kBFloat16);
    }
    if (joins) {
      JoinMasters(*graph_, CpuKernels());
      JoinMoments(*graph_, CpuKernels());
    }
    AddQuantizer(c);
    if (joins) JoinWeightCodes(*graph_, CpuKernels());
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
  }

  TensorMap Step(const Tensor& gradient, float scale, bool good) {
    return executor_->Run({{"dw", gradient},
                           {"scale", Tensor::Scalar(scale)},
                           {"good", Tensor::Scalar(good)},
                           {"lr", Tensor::Scalar(0.015625f)}},
                          state_);
  }

  bool Quantizes() const {
    for (const Node& node : graph_->nodes()) {
      if (node.IsOurs("QuantizeWith")) return true;
    }
    return false;
  }
  const TensorMap& state() const { return state_; }

 private:
  void AddQuantizer(const CodeCase& c) {
    Builder b(*graph_, "codes.");
    Value* scale = graph_->AddInput("scale", DType::kFloat, Shape{});
    Value* x = graph_->Find("w.next");
    if (c.correction != DType::kUndefined) {
      x = b.Ours("DecodeMaster", {x, graph_->Find("w.correction.next")},
                 {{"correction", static_cast<int64_t>(c.correction)}});
    } else {
      x = b.Cast(x, DType::kFloat);
    }
    if (c.round_to != DType::kFloat) {
      x = b.Ours("RoundTo", {x}, {{"to", static_cast<int64_t>(c.round_to)}});
    }
    const bool e4m3 = c.to == DType::kE4M3;
    for (Value* made : b.Ops("QuantizeWith", {x, scale}, 3,
                             {{"to", static_cast<int64_t>(c.to)},
                              {"q_max", e4m3 ? 448.0f : 57344.0f}},
                             kDomain)) {
      graph_->outputs.push_back(made);
    }
  }

  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_;
  std::unique_ptr<Executor> executor_;
  TensorMap state_;
};

// A scale of 0 is not known yet. A step is skipped with each of them.
TEST(WeightCodes, AnUpdateMakesTheQuantizersBits) {
  for (const CodeCase& c : kCodeCases) {
    SCOPED_TRACE(Concat(c.kind, " ", c.moments, " ", c.master));
    QuantizedUpdate joined(c, true), apart(c, false);
    EXPECT_FALSE(joined.Quantizes());
    EXPECT_TRUE(apart.Quantizes());
    uint64_t step = 0;
    for (float scale : {0.0f, 0.001f}) {
      for (bool good : {true, false}) {
        Tensor gradient = FloatsOfCodes(2 + ++step);
        gradient.data<float>()[600] = std::numeric_limits<float>::infinity();
        const TensorMap got = joined.Step(gradient, scale, good);
        const TensorMap want = apart.Step(gradient, scale, good);
        EXPECT_EQ(got.size(), want.size());
        for (const auto& [name, tensor] : want) {
          EXPECT_TRUE(Identical(got.at(name), tensor)) << name << step;
        }
        for (const auto& [name, tensor] : apart.state()) {
          EXPECT_TRUE(Identical(joined.state().at(name), tensor))
              << name << step;
        }
      }
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
