// SPDX-License-Identifier: Apache-2.0
//
// Parameters that are kept as bfloat16s: an update whose kernel decodes and
// encodes them gives the bits of nodes that do so one after the other.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/random.h"
#include "optimizers/optimizer.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/passes/join_masters.h"
#include "providers/passes/join_moments.h"
#include "providers/run/executor.h"
#include "tests/graph/parse.h"
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

constexpr char kScalarsOfMaster[] = R"(const step: int64[] = {3}
const lr: float[] = {0.125}
const clip: float[] = {0.75}
const seed: int64[] = {5000000000}
input ok: bool[]
input g: float[33,130]
input m: float[33,130]
input v: float[33,130]
)";
constexpr char kAdamWOfMaster[] =
    "eps=0.0625, lr_scale=0.5, weight_decay=0.25, one_minus_beta1=0.125, "
    "one_minus_beta2=0.25";
constexpr char kPlacesOfMaster[] = "begin=12, row=50, shift=70, stride=200";

// A graph of one update, whose results have memory of their own: one node, or
// nodes that decode the parameter w, update it and encode it.
std::string TextOfUpdate(DType correction, bool joins) {
  const bool splits = correction != DType::kUndefined;
  const std::string half = "bfloat16[33,130]", whole = "float[33,130]";
  const std::string type = Concat(Name(correction), "[33,130]");
  const std::string split = Concat("correction=", static_cast<int>(correction));
  const std::string moments = Concat("n: ", whole, ", u: ", whole);
  const std::string operands = "g, m, v, step, lr, clip, ok";
  std::string text = Concat(kScalarsOfMaster, "input w: ", half, "\n");
  if (splits) text += Concat("input c: ", type, "\n");
  if (joins) {
    return text +
           Concat(
               "p: ", half, ", ", moments, splits ? ", d: " + type : "",
               " = onnx_fp8.AdamW<", kAdamWOfMaster, ", ",
               splits ? split : Concat(kPlacesOfMaster, ", master_stream=99"),
               ">(w, ", operands, splits ? ", c" : ", seed, step", ")\n");
  }
  text += splits ? Concat("x: ", whole, " = onnx_fp8.DecodeMaster<", split,
                          ">(w, c)\n")
                 : Concat("x: ", whole, " = Cast<to=1>(w)\n");
  text += Concat("y: ", whole, ", ", moments, " = onnx_fp8.AdamW<",
                 kAdamWOfMaster, ">(x, ", operands, ")\n");
  return text + (splits ? Concat("p: ", half, ", d: ", type,
                                 " = onnx_fp8.EncodeMaster<", split, ">(y)\n")
                        : Concat("p: ", half, " = onnx_fp8.RoundStochastic<",
                                 kPlacesOfMaster, ", stream=99>",
                                 "(y, seed, step)\n"));
}

TensorMap RunText(const std::string& text, const char* outputs,
                  const TensorMap& feeds) {
  std::shared_ptr<Graph> graph = ParseGraph(text);
  for (const char* name = outputs; *name; ++name) {
    graph->outputs.push_back(graph->Find(std::string(1, *name)));
  }
  auto cpu = MakeCpuProvider();
  Executor executor(graph, *cpu);
  TensorMap state;
  return executor.Run(feeds, state);
}

// The gradient of this element is not a number.
constexpr int64_t kUntaken = 600;

// Operands that are not zero.
TensorMap FeedsOfUpdate(DType correction, bool ok) {
  TensorMap feeds;
  if (correction == DType::kUndefined) {
    feeds["w"] = ConvertTo(MasterFloats(1), DType::kBFloat16);
  } else {
    const std::string text = Concat(
        "input x: float[33,130]\nw: bfloat16[33,130], c: ", Name(correction),
        "[33,130] = onnx_fp8.EncodeMaster<correction=",
        static_cast<int>(correction), ">(x)\n");
    feeds = RunText(text, "wc", {{"x", MasterFloats(1)}});
  }
  feeds["g"] = MasterFloats(2);
  feeds["g"].data<float>()[kUntaken] = std::numeric_limits<float>::quiet_NaN();
  feeds["m"] = MasterFloats(3);
  feeds["v"] = MasterFloats(4);
  for (int64_t i = 0; i < feeds["v"].size(); ++i) {
    feeds["v"].data<float>()[i] += 0.5f;
  }
  feeds["ok"] = Tensor::Scalar(ok);
  return feeds;
}

bool SameElement(const Tensor& a, const Tensor& b, int64_t i) {
  const size_t bytes = ByteSize(a.dtype());
  const size_t at = static_cast<size_t>(i) * bytes;
  return a.dtype() == b.dtype() &&
         std::memcmp(static_cast<const std::byte*>(a.raw()) + at,
                     static_cast<const std::byte*>(b.raw()) + at, bytes) == 0;
}

// A result that is kept is a copy of its operand.
TEST(UpdatesOfMasters, InMemoryOfTheirOwnKeepWhatIsNotTaken) {
  for (DType correction : kCorrections) {
    const char* results = correction == DType::kUndefined ? "pnu" : "pnud";
    for (bool ok : {true, false}) {
      SCOPED_TRACE(Concat(MasterOf(correction), ", ok ", ok));
      const TensorMap feeds = FeedsOfUpdate(correction, ok);
      const TensorMap got =
          RunText(TextOfUpdate(correction, true), results, feeds);
      const TensorMap want =
          RunText(TextOfUpdate(correction, false), results, feeds);
      for (auto [result, operand] :
           {std::pair{"p", "w"}, {"n", "m"}, {"u", "v"}, {"d", "c"}}) {
        if (!feeds.contains(operand)) continue;
        const Tensor &now = got.at(result), &old = feeds.at(operand);
        EXPECT_TRUE(Identical(now, want.at(result))) << result;
        EXPECT_EQ(Identical(now, old), !ok) << result;
        EXPECT_TRUE(SameElement(now, old, kUntaken)) << result;
      }
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
