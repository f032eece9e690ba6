// SPDX-License-Identifier: Apache-2.0
//
// Parameters that are kept as bfloat16s: an update whose kernel decodes and
// encodes them gives the bits of nodes that do so one after the other.
#include <gtest/gtest.h>

#include <limits>
#include <memory>

#include "base/check.h"
#include "base/random.h"
#include "optimizers/optimizer.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/join_masters.h"
#include "providers/passes/join_moments.h"
#include "providers/run/executor.h"
#include "training/step/store_masters.h"

namespace onnx_fp8 {
namespace {

// More elements than a kernel decodes at a time. The last block of a row has
// two elements.
const Shape kMasterShape = {33, 130};

Tensor MasterFloats(uint64_t seed) {
  Tensor t = Tensor::Allocate(DType::kFloat, kMasterShape);
  for (int64_t i = 0; i < t.size(); ++i) {
    t.data<float>()[i] = RandomUniform(seed, static_cast<uint64_t>(i)) - 0.5f;
  }
  return t;
}

// The places of a part in the middle of a larger tensor.
constexpr ElementPlaces kPlacesOfPart = {
    .shift = 3, .run = 100, .stride = 170, .begin = 4294967000};

// The update of one parameter "w" whose gradient is fed.
class TrainedMaster {
 public:
  TrainedMaster(const OptimizerSpec& spec, DType correction, bool joins)
      : graph_(std::make_shared<Graph>()), cpu_(MakeCpuProvider()) {
    graph_->opset = 24;
    Value* w = graph_->AddInitializer("w", MasterFloats(1));
    w->role = Role::kParameter;
    Value* dw = graph_->AddInput("dw", DType::kFloat, kMasterShape);
    Value* good = graph_->AddInput("good", DType::kBool, Shape{});
    ParameterGradient part{w, dw, "w"};
    part.places = kPlacesOfPart;
    const OptimizerValues values = AppendOptimizer(
        *graph_, {part}, spec, {}, nullptr, {}, {}, good, 0x0123456789ABCDEF);
    if (values.update_amax) graph_->outputs = {values.update_amax};
    const auto places = [](const std::string&) { return kPlacesOfPart; };
    StoreMasters(*graph_, {w},
                 {.correction = correction,
                  .state_name = [](const std::string& name) { return name; },
                  .places = places,
                  .seed = graph_->Find("optimizer.seed"),
                  .number = graph_->Find("optimizer.step.next")});
    if (joins) {
      JoinMasters(*graph_, CpuKernels());
      JoinMoments(*graph_, CpuKernels());
    }
    executor_ = std::make_unique<Executor>(graph_, *cpu_);
    state_["w"] = ConvertTo(MasterFloats(1), DType::kBFloat16);
  }

  // Returns the amax of the update, if there is one.
  TensorMap Step(const Tensor& gradient, bool good) {
    return executor_->Run({{"dw", gradient},
                           {"good", Tensor::Scalar(good)},
                           {"lr", Tensor::Scalar(0.015625f)}},
                          state_);
  }

  bool Has(const char* op) const {
    for (const Node& node : graph_->nodes()) {
      if (node.op == op) return true;
    }
    return false;
  }
  // Whether the parameter is a float anywhere.
  bool IsDecoded() const {
    for (const Node* reader : graph_->Find("w")->uses) {
      if (reader->op == "Cast" || reader->op == "DecodeMaster") return true;
    }
    return false;
  }
  const TensorMap& state() const { return state_; }

 private:
  std::shared_ptr<Graph> graph_;
  std::unique_ptr<ExecutionProvider> cpu_;
  std::unique_ptr<Executor> executor_;
  TensorMap state_;
};

constexpr DType kCorrections[] = {DType::kInt8, DType::kInt16,
                                  DType::kUndefined};

std::vector<OptimizerSpec> SpecsOfMasters() {
  std::vector<OptimizerSpec> specs;
  for (const char* kind : {"adam", "adamw", "adamw_hf", "sgd", "momentum"}) {
    for (const std::string& moments : MomentFormats()) {
      OptimizerSpec spec = {
          .kind = kind, .weight_decay = 0.125, .moments = moments};
      if (spec.kind == "adamw_hf") spec.weight_decay = 0;
      if (spec.kind == "sgd" && moments != "float32") continue;
      if (spec.kind == "momentum") {
        spec.kind = "sgd";
        spec.momentum = 0.875;
        spec.nesterov = moments == "bfloat16";
      }
      specs.push_back(spec);
    }
  }
  return specs;
}

// The `master` with such a correction.
const char* MasterOf(DType correction) {
  return correction == DType::kInt8    ? "split8"
         : correction == DType::kInt16 ? "split"
                                       : "bfloat16";
}

// Released gradients: an element whose gradient is not finite stays. The third
// step is skipped.
void ExpectTheSameBits(OptimizerSpec spec, DType correction) {
  spec.master = MasterOf(correction);
  spec.release_gradients = true;
  SCOPED_TRACE(Concat(spec.kind, " ", spec.momentum, " ", spec.moments, " ",
                      spec.master));
  TrainedMaster joined(spec, correction, true);
  TrainedMaster apart(spec, correction, false);
  EXPECT_FALSE(joined.IsDecoded());
  EXPECT_FALSE(joined.Has("EncodeMaster") || joined.Has("RoundStochastic"));
  EXPECT_TRUE(apart.IsDecoded());
  for (uint64_t step = 0; step < 3; ++step) {
    Tensor gradient = MasterFloats(2 + step);
    gradient.data<float>()[600 + step] =
        std::numeric_limits<float>::quiet_NaN();
    const TensorMap got = joined.Step(gradient, step != 2);
    for (const auto& [name, want] : apart.Step(gradient, step != 2)) {
      EXPECT_TRUE(Identical(got.at(name), want)) << name << step;
    }
    ASSERT_EQ(joined.state().size(), apart.state().size());
    for (const auto& [name, want] : apart.state()) {
      EXPECT_TRUE(Identical(joined.state().at(name), want)) << name << step;
    }
  }
  EXPECT_FALSE(Identical(joined.state().at("w"),
                         ConvertTo(MasterFloats(1), DType::kBFloat16)));
}

TEST(UpdatesOfMasters, JoinedGiveTheSameBits) {
  for (const OptimizerSpec& spec : SpecsOfMasters()) {
    for (DType correction : kCorrections) ExpectTheSameBits(spec, correction);
  }
}

TEST(UpdatesOfMasters, ASkippedStepKeepsTheCodes) {
  for (DType correction : kCorrections) {
    OptimizerSpec spec = {.kind = "adamw"};
    spec.master = MasterOf(correction);
    TrainedMaster trained(spec, correction, true);
    trained.Step(MasterFloats(2), true);
    TensorMap before;
    for (const auto& [name, tensor] : trained.state()) {
      before[name] = tensor.Clone();
    }
    trained.Step(MasterFloats(3), false);
    before.erase("optimizer.skipped");
    for (const auto& [name, tensor] : before) {
      EXPECT_TRUE(Identical(trained.state().at(name), tensor)) << name;
    }
  }
}

// A decay behind the update reads its result as a float.
TEST(UpdatesOfMasters, ADecayBehindTheUpdateKeepsThemApart) {
  const OptimizerSpec spec = {.kind = "adamw_hf", .weight_decay = 0.125};
  TrainedMaster trained(spec, DType::kInt8, true);
  EXPECT_TRUE(trained.Has("EncodeMaster"));
  EXPECT_TRUE(trained.IsDecoded());
  trained.Step(MasterFloats(2), true);
}

}  // namespace
}  // namespace onnx_fp8
