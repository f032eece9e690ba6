// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose frozen weights live as FP8 codes, or as bfloat16s.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "graph/builder.h"
#include "graph/node_notes.h"
#include "graph/onnx/onnx_io.h"
#include "graph/op_facts.h"
#include "onnx_fp8/float8.h"
#include "onnx_fp8/option_error.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"
#include "training/state/frozen_file.h"
#include "training/step/pipelines.h"
#include "training/step/step_file.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kFirstLayer = kIn * kHidden;

SessionOptions WithFrozen(SessionOptions options, const char* layer,
                          const char* how = "fp8") {
  options.freeze = {layer};
  options.frozen = how;
  return options;
}

struct FrozenRun {
  std::vector<float> losses;
  TensorMap state;
  std::string remark;  // of the first step
};

TensorMap StateOfFrozenRun(TrainingSession& session) {
  TensorMap copy;
  for (const auto& [name, tensor] : session.State().tensors) {
    copy[name] = tensor.Clone();
  }
  return copy;
}

FrozenRun RunFrozen(const SessionOptions& options,
                    const std::vector<Batches>& steps) {
  auto session = TrainingSession::Create(options);
  FrozenRun run;
  // Its graph asks for codes first, and for fewer of them.
  run.losses.push_back(session->Eval(Batch(9)).loss);
  for (const Batches& batches : steps) {
    const StepResult result = session->Step(batches, 1e-2);
    if (run.remark.empty()) run.remark = result.remark;
    run.losses.push_back(result.loss);
  }
  run.losses.push_back(session->Eval(Batch(9)).loss);
  run.state = StateOfFrozenRun(*session);
  return run;
}

void ExpectSameRun(const FrozenRun& got, const FrozenRun& want) {
  EXPECT_EQ(got.losses, want.losses);
  ExpectSame(got.state, want.state);
}

std::vector<Batches> ThreeSteps() {
  return {{Batch(1)}, {Batch(2, 3)}, {Batch(3)}};
}

bool Tells(const std::string& text, const std::string& words) {
  return text.find(words) != std::string::npos;
}

// ---- bits

// Delayed scales of a frozen weight are its own with codes, so there the factor
// may round otherwise.
TEST(FrozenCodesOfASession, KeepAllBits) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  auto delayed = TrainingSession::Create(Options(model, "delayed"));
  delayed->Step(Batch(1), 1e-2);
  delayed->Save(dir / "scales");
  for (const RecipePreset& recipe : RecipePresets()) {
    if (recipe.name == std::string("delayed")) continue;
    SCOPED_TRACE(recipe.name);
    SessionOptions options = Options(model, recipe.name);
    if (recipe.name == std::string("static")) options.scales = dir / "scales";
    // Its codes serve forward and backward.
    const std::vector<Batches> steps = {{Batch(1)}, {Batch(2)}};
    ExpectSameRun(
        RunFrozen(WithFrozen(options, "out.weight"), steps),
        RunFrozen(WithFrozen(options, "out.weight", "float32"), steps));
  }
}

// They serve plans for batches of other sizes.
TEST(FrozenCodesOfASession, KeepTheBitsOfOtherBatches) {
  TempDir dir;
  const SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  ExpectSameRun(
      RunFrozen(WithFrozen(options, "fc.weight"), ThreeSteps()),
      RunFrozen(WithFrozen(options, "fc.weight", "float32"), ThreeSteps()));
}

TEST(FrozenCodesOfASession, KeepTheBitsOfBFloat16) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.dtype = DType::kBFloat16;
  const auto losses = [&](const char* how) {
    return RunFrozen(WithFrozen(options, "out.weight", how),
                     {{Batch(1)}, {Batch(2)}})
        .losses;
  };
  const std::vector<float> want = losses("float32");
  EXPECT_EQ(losses("fp8"), want);
  EXPECT_EQ(losses("bfloat16"), want);
}

TEST(FrozenCodesOfASession, KeepTheBitsOfMicroBatches) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const std::vector<Batches> steps = {{Batch(1), Batch(2)},
                                      {Batch(3), Batch(4)}};
  for (const char* recipe : {"tensorwise", "rowwise"}) {
    SCOPED_TRACE(recipe);
    SessionOptions options = Options(model, recipe);
    options.grad_accum = 2;
    ExpectSameRun(
        RunFrozen(WithFrozen(options, "out.weight"), steps),
        RunFrozen(WithFrozen(options, "out.weight", "float32"), steps));
  }
}

TEST(FrozenCodesOfASession, KeepTheBitsBesidePrimaryWeights) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "rowwise");
  options.primary_weights = "fp8";
  ExpectSameRun(
      RunFrozen(WithFrozen(options, "out.weight"), ThreeSteps()),
      RunFrozen(WithFrozen(options, "out.weight", "float32"), ThreeSteps()));
}

TEST(FrozenCodesOfASession, KeepTheBitsOfRanks) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (Sharding what : {Sharding::kNone, Sharding::kParameters}) {
    SessionOptions options = Options(model, "tensorwise");
    options.shard.what = what;
    const std::vector<Batches> steps = {{Batch(1)}, {Batch(2)}};
    const auto want =
        TrainRanks(2, WithFrozen(options, "fc.weight", "float32"), steps);
    const auto got = TrainRanks(2, WithFrozen(options, "fc.weight"), steps);
    for (size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(got[0].steps[i].loss, want[0].steps[i].loss);
    }
    ExpectSame(got[0].weights, want[0].weights);
  }
}

// A weight of this size has no numbers in the session's graphs, and its data
// lie in a file beside the model.
TEST(FrozenCodesOfASession, ComeFromAFileThatIsMapped) {
  constexpr int64_t kWide = 512;
  TempDir dir;
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kIn});
  x->axis_names = {"batch", ""};
  const auto layer = [&](Value* in, const char* name, const Shape& shape) {
    return b.Op("MatMul",
                {in, graph.AddInitializer(name, Random(shape, shape[0]))});
  };
  Value* h = layer(x, "in.weight", {kIn, kWide});
  h = layer(h, "wide.weight", {kWide, kWide});
  graph.outputs = {layer(h, "out.weight", {kWide, kClasses})};
  const std::string model = dir / "wide.onnx";
  WriteModel(graph, model, {.external_data = true});
  const SessionOptions options = Options(model, "tensorwise");
  FrozenRun runs[2];
  for (int codes : {0, 1}) {
    runs[codes] =
        RunFrozen(WithFrozen(options, "wide.weight", codes ? "fp8" : "float32"),
                  {{Batch(1)}, {Batch(2)}});
  }
  ExpectSameRun(runs[1], runs[0]);
  EXPECT_TRUE(Identical(runs[1].state.at("wide.weight"),
                        graph.Find("wide.weight")->data));
}

// ---- delayed scales

TEST(FrozenCodesOfASession, HaveTheirOwnScaleWhereScalesAreDelayed) {
  TempDir dir;
  const SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  auto own = TrainingSession::Create(WithFrozen(options, "out.weight"));
  auto kept =
      TrainingSession::Create(WithFrozen(options, "out.weight", "float32"));
  EXPECT_EQ(own->Step(Batch(1), 1e-2).loss, kept->Step(Batch(1), 1e-2).loss);
  const auto weights = [](TrainingSession& session) {
    const std::vector<ScaleInfo> scales = session.Scales();
    return std::ranges::count_if(scales, [](const ScaleInfo& scale) {
      return Tells(scale.key, "out.weight") && Tells(scale.key, "/weight/");
    });
  };
  EXPECT_EQ(weights(*own), 0);
  EXPECT_GT(weights(*kept), 0);
}

// ---- bytes

// Besides the codes there are a scale and an amax.
TEST(FrozenCodesOfASession, TakeAByteAParameter) {
  TempDir dir;
  const SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  const auto bytes = [&](const char* how) {
    auto session =
        TrainingSession::Create(WithFrozen(options, "fc.weight", how));
    session->Step(Batch(1), 1e-2);
    session->Eval(Batch(2));
    return session->Memory().state_bytes;
  };
  EXPECT_EQ(bytes("float32") - bytes("fp8"), 3 * kFirstLayer - 8);
  EXPECT_EQ(bytes("float32") - bytes("bfloat16"), 2 * kFirstLayer);
}

TEST(FrozenCodesOfASession, ARemarkSaysTheirBytes) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const auto remark = [&](const char* recipe, const char* how) {
    return RunFrozen(WithFrozen(Options(model, recipe), "out.weight", how),
                     {{Batch(1)}})
        .remark;
  };
  const std::string one = remark("tensorwise", "fp8");
  EXPECT_TRUE(Tells(one, Concat("`frozen` fp8: frozen weights as FP8 codes and "
                                "scales: 1 (",
                                kHidden * kClasses + 8,
                                " bytes), as bfloat16, rounded to the "
                                "nearest: 0 (0 bytes), as in the model: 0")))
      << one;
  EXPECT_TRUE(Tells(remark("rowwise", "fp8"), "1 twice, because"));
  EXPECT_TRUE(Tells(remark("off", "fp8"), "FP8 codes and scales: 0 ("));
  EXPECT_TRUE(Tells(remark("off", "bfloat16"), "the nearest: 1 ("));
  EXPECT_FALSE(Tells(remark("off", "float32"), "`frozen`"));
}

TEST(FrozenCodesOfASession, ARemarkSaysThatNothingIsFrozen) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.frozen = "fp8";
  EXPECT_TRUE(Tells(RunFrozen(options, {{Batch(1)}}).remark,
                    "`frozen` fp8: the step reads no frozen weight"));
}

// ---- what a session keeps

TEST(FrozenCodesOfASession, AResumedRunGoesOnWithTheSameBits) {
  TempDir dir;
  const SessionOptions options = Options(WriteMlp(dir, false), "rowwise");
  const std::vector<Batches> steps = {{Batch(1)}, {Batch(2)}};
  const FrozenRun want =
      RunFrozen(WithFrozen(options, "out.weight", "float32"), steps);
  constexpr const char* kWays[][2] = {
      {"fp8", "fp8"}, {"fp8", "float32"}, {"float32", "fp8"}};
  for (const auto& [before, after] : kWays) {
    SCOPED_TRACE(Concat(before, " ", after));
    const std::string run = dir / Concat(before, after);
    auto session =
        TrainingSession::Create(WithFrozen(options, "out.weight", before));
    session->Step(steps[0], 1e-2);
    session->Save(run);
    session = TrainingSession::Create(WithFrozen(options, "out.weight", after));
    session->Restore(run);
    EXPECT_EQ(session->Step(steps[1], 1e-2).loss, want.losses[2]);
    ExpectSame(StateOfFrozenRun(*session), want.state);
  }
}

TEST(FrozenCodesOfASession, CheckpointsShareAFileOfTheWeights) {
  TempDir dir;
  const SessionOptions options =
      WithFrozen(Options(WriteMlp(dir, false), "tensorwise"), "fc.weight");
  auto session = TrainingSession::Create(options);
  const auto step_and_save = [&] {
    const std::string remark = session->Step(Batch(1), 1e-2).remark;
    session->Save(dir / "run");
    return remark;
  };
  const auto files = [&] {
    std::vector<std::string> found;
    for (const std::string& name : NamesIn(dir / "run/checkpoints")) {
      if (IsFrozenFileName(name)) found.push_back(name);
    }
    return found;
  };
  EXPECT_TRUE(Tells(step_and_save(),
                    Concat("checkpoints share a file with the frozen weights, "
                           "of ",
                           4 * kFirstLayer, " bytes")));
  step_and_save();
  step_and_save();
  ASSERT_EQ(files().size(), 1u);
  const std::string first = files()[0];
  const std::string folder = dir / "run/checkpoints/";
  const TensorMap frozen = ReadSafetensors(folder + first);
  EXPECT_EQ(frozen.size(), 1u);
  EXPECT_TRUE(frozen.contains("fc.weight"));
  const TensorMap state =
      ReadSafetensors(folder + "step_00000003/state.safetensors");
  EXPECT_FALSE(state.contains("fc.weight"));
  EXPECT_TRUE(state.contains("out.weight"));
  // Checkpoints of other weights have another file.
  session->SetWeights({{"fc.weight", Random({kIn, kHidden}, 77)}});
  step_and_save();
  EXPECT_EQ(files().size(), 2u);
  step_and_save();
  ASSERT_EQ(files().size(), 1u);
  EXPECT_NE(files()[0], first);
  // A session goes on with the file that it has read.
  session = TrainingSession::Create(options);
  session->Restore(dir / "run");
  EXPECT_TRUE(Identical(session->ReadWeights().at("fc.weight"),
                        Random({kIn, kHidden}, 77)));
  session->Save(dir / "run");
  session->Save(dir / "other");
  EXPECT_EQ(files().size(), 1u);
  const std::string own = "/checkpoints/" + files()[0];
  EXPECT_TRUE(std::filesystem::equivalent(dir.path() + "/run" + own,
                                          dir.path() + "/other" + own));
}

TEST(FrozenCodesOfASession, FollowStateAndWeightsThatACallerSets) {
  TempDir dir;
  const SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  std::vector<float> losses[2];
  for (int codes : {0, 1}) {
    auto session = TrainingSession::Create(
        WithFrozen(options, "fc.weight", codes ? "fp8" : "float32"));
    const auto step = [&](uint64_t seed) {
      losses[codes].push_back(session->Step(Batch(seed), 1e-2).loss);
    };
    step(1);
    SessionState state = session->State();
    for (auto& [name, tensor] : state.tensors) tensor = tensor.Clone();
    session->SetWeights({{"fc.weight", Random({kIn, kHidden}, 77)}});
    step(2);
    EXPECT_TRUE(Identical(session->ReadWeights().at("fc.weight"),
                          Random({kIn, kHidden}, 77)));
    session->SetState(state);
    // The session has a copy of its own.
    for (auto& [name, tensor] : state.tensors) {
      if (name == "fc.weight") tensor.data<float>()[0] = 100;
    }
    step(3);
    losses[codes].push_back(session->Eval(Batch(5)).loss);
  }
  EXPECT_EQ(losses[1], losses[0]);
}

TEST(FrozenCodesOfASession, TheWeightsOfTheFileAreWritten) {
  TempDir dir;
  auto session = TrainingSession::Create(
      WithFrozen(Options(WriteMlp(dir, false), "tensorwise"), "fc.weight"));
  session->Step(Batch(1), 1e-2);
  const Tensor first = Random({kIn, kHidden}, 1);
  EXPECT_TRUE(Identical(session->ReadWeights().at("fc.weight"), first));
  EXPECT_TRUE(Identical(Weights(*session, dir).at("fc.weight"), first));
}

TEST(FrozenBFloat16s, AreTheNearest) {
  TempDir dir;
  auto session = TrainingSession::Create(
      WithFrozen(Options(WriteMlp(dir, false)), "fc.weight", "bfloat16"));
  session->Step(Batch(1), 1e-2);
  EXPECT_EQ(session->State().tensors.at("fc.weight").dtype(), DType::kBFloat16);
  const Tensor read = session->ReadWeights().at("fc.weight");
  const Tensor first = Random({kIn, kHidden}, 1);
  EXPECT_TRUE(Identical(
      read, ConvertTo(ConvertTo(first, DType::kBFloat16), DType::kFloat)));
  session->Save(dir / "run");
  auto other = TrainingSession::Create(
      WithFrozen(Options(dir / "mlp.onnx"), "fc.weight", "float32"));
  ExpectError([&] { other->Restore(dir / "run"); },
              "`master` and the `frozen` with which it began");
}

// ---- what is refused

std::string RefusalOfFrozen(const SessionOptions& options,
                            const MeshRanks* ranks = nullptr) {
  try {
    MakeSession(options, MakeCpuProvider(), ranks);
  } catch (const OptionError& error) {
    return error.what();
  }
  return "no error";
}

TEST(FrozenCodesOfASession, WhatHasNoWholeWeightsIsRefused) {
  TempDir dir;
  const SessionOptions plain = Options(WriteMlp(dir, false), "tensorwise");
  const SessionOptions options = WithFrozen(plain, "fc.weight");
  EXPECT_EQ(RefusalOfFrozen(WithFrozen(plain, "fc.weight", "int8")),
            "`frozen`: expected float32, bfloat16 or fp8, got int8");
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.tp = 2}, world);
    EXPECT_TRUE(Tells(RefusalOfFrozen(options, &ranks), "(tp=1), got tp=2"));
  });
  StepFile file(options);
  file.Write({{"x", {6, kIn}}}, {}, dir / "step.onnx");
  EXPECT_TRUE(Tells(file.notes().back(), "`frozen` fp8 is no part of a file"));
  SessionOptions of_step;
  of_step.model = dir / "step.onnx";
  of_step.frozen = "fp8";
  EXPECT_TRUE(Tells(RefusalOfFrozen(of_step),
                    "expected a model, got a training step in a file"));
}

// ---- what nobody wants

// The roles of the products of each layer in a step.
std::vector<std::string> ProductsOf(const SessionOptions& options) {
  PassRunner runner = MakePassRunner(options);
  const TrainingModel model = LoadTrainingModel(options, runner);
  const auto evaluator = MakeCpuEvaluator();
  const StepSource source = MakeStepSource(options, model, *evaluator, runner);
  const StepGraph step =
      BuildStepGraph(source, StepKind::kTrain, {{"x", {6, kIn}}});
  std::vector<std::string> products;
  for (const Node& node : step.graph->nodes()) {
    const OpKind kind = FactsOf(node).kind;
    if (kind != OpKind::kProduct && kind != OpKind::kScaledProduct) continue;
    products.push_back(NodeNote(node, "fqn") + " " + NodeNote(node, "role"));
  }
  std::ranges::sort(products);
  return products;
}

TEST(FrozenWeightsOfAStep, HaveNoGradient) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe : {"off", "tensorwise"}) {
    for (const char* how : {"float32", "fp8"}) {
      SCOPED_TRACE(Concat(recipe, " ", how));
      const SessionOptions options = Options(model, recipe);
      // Below the first trained layer nothing reads a gradient.
      EXPECT_EQ(
          ProductsOf(WithFrozen(options, "fc.weight", how)),
          (std::vector<std::string>{"fc.weight forward", "out.weight forward",
                                    "out.weight wgrad"}));
      EXPECT_EQ(
          ProductsOf(WithFrozen(options, "out.weight", how)),
          (std::vector<std::string>{"fc.weight forward", "fc.weight wgrad",
                                    "out.weight dgrad", "out.weight forward"}));
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
