// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose FP8 copies of weights live from step to step: bits are as
// without it.
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/option_error.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/run/executor.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"
#include "training/session/make_session.h"
#include "training/step/pipelines.h"
#include "training/step/step_file.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

SessionOptions WithPrimary(SessionOptions options) {
  options.primary_weights = "fp8";
  return options;
}

TensorMap StateOfSession(TrainingSession& session) {
  TensorMap copy;
  for (const auto& [name, tensor] : session.State().tensors) {
    copy[name] = tensor.Clone();
  }
  return copy;
}

struct PrimaryRun {
  std::vector<float> losses;
  TensorMap state;
  std::string remark;  // of the first step
};

PrimaryRun RunOf(const SessionOptions& options,
                 const std::vector<Batches>& steps) {
  auto session = TrainingSession::Create(options);
  PrimaryRun run;
  for (const Batches& batches : steps) {
    const StepResult result = session->Step(batches, 1e-2);
    EXPECT_FALSE(result.skipped) << result.cause;
    run.losses.push_back(result.loss);
    if (run.losses.size() == 1) run.remark = result.remark;
  }
  run.state = StateOfSession(*session);
  return run;
}

bool Says(const std::string& remark, const char* words) {
  return remark.find(words) != std::string::npos;
}

// ---- what changes weights outside of a step

constexpr const char* kFewRecipes[] = {"tensorwise", "delayed", "rowwise"};

std::vector<Batches> FourSteps() {
  return {{Batch(1)}, {Batch(2)}, {Batch(3)}, {Batch(4)}};
}

// With or without the copies before, and with or without them afterwards.
TEST(PrimaryWeights, AResumedRunGoesOnWithTheSameBits) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe : kFewRecipes) {
    SCOPED_TRACE(recipe);
    const SessionOptions plain = Options(model, recipe);
    const std::vector<Batches> steps = FourSteps();
    const PrimaryRun want = RunOf(plain, steps);
    for (int way : {1, 2, 3}) {
      auto session =
          TrainingSession::Create(way & 1 ? WithPrimary(plain) : plain);
      const std::string run = dir / Concat(recipe, way);
      for (size_t i : {0, 1}) session->Step(steps[i], 1e-2);
      session->Save(run);
      session = TrainingSession::Create(way & 2 ? WithPrimary(plain) : plain);
      session->Restore(run);
      for (size_t i : {2, 3}) {
        EXPECT_EQ(session->Step(steps[i], 1e-2).loss, want.losses[i]);
      }
      ExpectSame(StateOfSession(*session), want.state);
    }
  }
}

// One session takes a state, and weights, in place of its own.
TEST(PrimaryWeights, FollowStateThatACallerSets) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe : kFewRecipes) {
    SCOPED_TRACE(recipe);
    std::vector<float> losses[2];
    for (int primary : {0, 1}) {
      const SessionOptions plain = Options(model, recipe);
      auto session =
          TrainingSession::Create(primary ? WithPrimary(plain) : plain);
      auto step = [&](uint64_t seed) {
        losses[primary].push_back(session->Step(Batch(seed), 1e-2).loss);
      };
      step(1);
      SessionState state = session->State();
      for (auto& [name, tensor] : state.tensors) tensor = tensor.Clone();
      step(2);
      session->SetState(state);
      step(3);
      session->SetWeights({{"fc.weight", Random({kIn, kHidden}, 77)}});
      step(4);
      losses[primary].push_back(session->Eval(Batch(5)).loss);
    }
    EXPECT_EQ(losses[0], losses[1]);
  }
}

TEST(PrimaryWeights, ASkippedStepKeepsThem) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe : kFewRecipes) {
    for (bool releases : {false, true}) {
      SCOPED_TRACE(recipe);
      std::vector<float> losses[2];
      for (int primary : {0, 1}) {
        SessionOptions options = Options(model, recipe);
        options.optimizer.release_gradients = releases;
        auto session =
            TrainingSession::Create(primary ? WithPrimary(options) : options);
        session->Step(Batch(1), 1e-2);
        TensorMap bad = Batch(2);
        bad.at("x").data<float>()[0] = std::numeric_limits<float>::infinity();
        EXPECT_TRUE(session->Step(bad, 1e-2).skipped);
        for (uint64_t i : {3, 4}) {
          losses[primary].push_back(session->Step(Batch(i), 1e-2).loss);
        }
      }
      EXPECT_EQ(losses[0], losses[1]);
    }
  }
}

// The first plan's scales may be unmeasured, so its codes are made by other
// nodes than the second plan's.
TEST(PrimaryWeights, ServeBatchesOfOtherSizes) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe : kFewRecipes) {
    for (int64_t plans : {8, 1}) {
      SCOPED_TRACE(Concat(recipe, " ", plans));
      SessionOptions options = Options(model, recipe);
      options.max_plans = plans;
      const std::vector<Batches> steps = {
          {Batch(1)}, {Batch(2, 3)}, {Batch(3)}, {Batch(4, 3)}, {Batch(5, 3)}};
      const PrimaryRun want = RunOf(options, steps);
      const PrimaryRun got = RunOf(WithPrimary(options), steps);
      EXPECT_EQ(got.losses, want.losses);
      ExpectSame(got.state, want.state);
    }
  }
}

// By this table small batches are no faster in FP8. Their step changes weights
// and reads no codes, so the next large batch needs new ones.
TEST(PrimaryWeights, FollowAStepThatReadsNone) {
  TempDir dir;
  auto speeds = std::make_shared<SpeedTable>();
  speeds->source = "a test";
  speeds->speedup = {{3, 6}, {kIn}, {kHidden}, {0.5, 2}};
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.filter.speeds = speeds;
  const std::vector<Batches> steps = {{Batch(1)}, {Batch(2, 3)}, {Batch(3)}};
  const PrimaryRun want = RunOf(options, steps);
  const PrimaryRun got = RunOf(WithPrimary(options), steps);
  EXPECT_EQ(got.losses, want.losses);
  ExpectSame(got.state, want.state);
}

TEST(PrimaryWeights, WithMicroBatchesAStepMakesThem) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.grad_accum = 2;
  const std::vector<Batches> steps = {{Batch(1), Batch(2)},
                                      {Batch(3), Batch(4)}};
  const PrimaryRun want = RunOf(options, steps);
  const PrimaryRun got = RunOf(WithPrimary(options), steps);
  EXPECT_EQ(got.losses, want.losses);
  ExpectSame(got.state, want.state);
  EXPECT_TRUE(Says(got.remark, "for all of its micro-batches")) << got.remark;
}

// A step in a file, in which nothing says how copies live.
TEST(PrimaryWeights, OfAStepInAFile) {
  TempDir dir;
  StepFile file(WithPrimary(Options(WriteMlp(dir, false), "delayed")));
  file.Write({{"x", {6, kIn}}}, {}, dir / "step.onnx");
  EXPECT_TRUE(Says(file.notes().back(), "`primary_weights` fp8 is no part"));
  SessionOptions options;
  options.model = dir / "step.onnx";
  const PrimaryRun want = RunOf(options, FourSteps());
  const PrimaryRun got = RunOf(WithPrimary(options), FourSteps());
  EXPECT_EQ(got.losses, want.losses);
  ExpectSame(got.state, want.state);
  EXPECT_TRUE(Says(got.remark, "2 weights live from step to step"))
      << got.remark;
}

TEST(PrimaryWeights, SayThatThereAreNone) {
  TempDir dir;
  const SessionOptions options = WithPrimary(Options(WriteMlp(dir, false)));
  const std::string remark = RunOf(options, {{Batch(1)}}).remark;
  EXPECT_TRUE(Says(remark, "no product reads a weight in FP8")) << remark;
}

std::string RefusalOf(const SessionOptions& options) {
  try {
    TrainingSession::Create(options);
  } catch (const OptionError& error) {
    return error.what();
  }
  return "no error";
}

TEST(PrimaryWeights, WhatIsNoFormatOrHasNoWholeCodesIsRefused) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.primary_weights = "int8";
  EXPECT_EQ(RefusalOf(options),
            "`primary_weights`: expected float or fp8, got int8");
  options = WithPrimary(options);
  options.shard.what = Sharding::kParameters;
  EXPECT_TRUE(RefusalOf(options).starts_with(
      "`primary_weights=fp8`: expected `shard` none, optimizer or gradients"));
}

// ---- ranks

void ExpectTheBitsOfRanks(const Mesh& mesh, const SessionOptions& options) {
  const std::vector<Batches> steps = {{Batch(1)}, {Batch(2)}};
  const std::vector<RankRun> want = TrainRanks(mesh, options, steps);
  const std::vector<RankRun> got =
      TrainRanks(mesh, WithPrimary(options), steps);
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(got[0].steps[i].loss, want[0].steps[i].loss);
    EXPECT_EQ(got[0].steps[i].grad_norm, want[0].steps[i].grad_norm);
  }
  ExpectSame(got[0].weights, want[0].weights);
}

// Codes travel (tensorwise, delayed), or weights of which each rank makes codes
// (rowwise).
TEST(PrimaryWeights, KeepTheBitsOfRanks) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  bool releases = false;
  for (const char* recipe : kFewRecipes) {
    for (Sharding what :
         {Sharding::kNone, Sharding::kOptimizer, Sharding::kGradients}) {
      releases = !releases;
      SCOPED_TRACE(Concat(recipe, " ", static_cast<int>(what), releases));
      SessionOptions options = Options(model, recipe);
      options.shard.what = what;
      options.optimizer.release_gradients = releases;
      ExpectTheBitsOfRanks({.dp = 2}, options);
    }
  }
  ExpectTheBitsOfRanks({.tp = 2}, Options(model, "tensorwise"));
  ExpectTheBitsOfRanks({.tp = 2}, Options(model, "delayed"));
  SessionOptions both = Options(model, "tensorwise");
  both.shard.what = Sharding::kOptimizer;
  ExpectTheBitsOfRanks({.dp = 2, .tp = 2}, both);
}

// Ranks need new plans, and new copies, in different steps.
TEST(PrimaryWeights, OfRanksWithOtherBatches) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "delayed");
  options.shard.what = Sharding::kOptimizer;
  std::vector<float> losses[2];
  for (int primary : {0, 1}) {
    const SessionOptions own = primary ? WithPrimary(options) : options;
    RunRanks(2, [&](Communicator& world) {
      const MeshRanks ranks({.dp = 2}, world);
      auto session = MakeSession(own, MakeCpuProvider(), &ranks);
      constexpr int64_t kSizes[][2] = {{6, 6}, {6, 3}, {6, 6}, {3, 6}, {3, 3}};
      uint64_t seed = 0;
      for (const auto& sizes : kSizes) {
        const TensorMap batch = Batch(++seed, sizes[world.rank()]);
        const StepResult result = session->Step(batch, 1e-2);
        if (world.rank() == 0) losses[primary].push_back(result.loss);
      }
    });
  }
  EXPECT_EQ(losses[0], losses[1]);
}

// A checkpoint of two ranks goes on with one, and back.
TEST(PrimaryWeights, AnotherNumberOfRanksGoesOn) {
  TempDir dir;
  SessionOptions options =
      WithPrimary(Options(WriteMlp(dir, false), "tensorwise"));
  options.shard.what = Sharding::kOptimizer;
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    session->Step(ShareOf(Batch(1), world), 1e-2);
    session->Save(dir / "run");
  });
  SessionOptions alone = options;
  alone.shard.what = Sharding::kNone;
  float losses[2];
  for (int primary : {0, 1}) {
    alone.primary_weights = primary ? "fp8" : "float";
    auto session = TrainingSession::Create(alone);
    session->Restore(dir / "run");
    losses[primary] = session->Step(Batch(2), 1e-2).loss;
    session->Save(dir / (primary ? "fp8" : "float"));
  }
  EXPECT_EQ(losses[0], losses[1]);
  float again[2];
  for (int primary : {0, 1}) {
    SessionOptions own = options;
    own.primary_weights = primary ? "fp8" : "float";
    RunRanks(2, [&](Communicator& world) {
      const MeshRanks ranks({.dp = 2}, world);
      auto session = MakeSession(own, MakeCpuProvider(), &ranks);
      session->Restore(dir / (primary ? "fp8" : "float"));
      const StepResult result = session->Step(ShareOf(Batch(3), world), 1e-2);
      if (world.rank() == 0) again[primary] = result.loss;
    });
  }
  EXPECT_EQ(again[0], again[1]);
}

// ---- the step by itself

// A step that keeps copies, on paper, and the graph that makes them anew.
struct KeptStep {
  KeptStep(SessionOptions session, const Mesh& mesh)
      : options(WithPrimary(std::move(session))),
        runner(MakePassRunner(options)),
        model(LoadTrainingModel(options, runner)),
        evaluator(MakeEvaluator()) {
    const StepSource source =
        MakeStepSource(options, model, *evaluator, runner, mesh);
    step = BuildStepGraph(source, StepKind::kTrain, {{"x", {6, kIn}}});
    FitToKernels(*step.graph, provider->Kernels(), options, *evaluator, runner);
    maker = KeepPrimaryWeights(source, provider->Kernels(), &step);
  }

  SessionOptions options;
  PassRunner runner;
  TrainingModel model;
  std::unique_ptr<Evaluator> evaluator;
  std::unique_ptr<ExecutionProvider> provider = MakeCpuProvider();
  StepGraph step;
  std::shared_ptr<Graph> maker;
};

TEST(PrimaryWeights, AreTheCodesOfTheWeightsBehindTheStep) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe :
       {"tensorwise", "rowwise", "delayed", "blockwise", "mxfp8"}) {
    SCOPED_TRACE(recipe);
    KeptStep kept(Options(model, recipe), {});
    ASSERT_NE(kept.maker, nullptr);
    Executor maker(kept.maker, *kept.provider);
    Executor step(kept.step.graph, *kept.provider);
    TensorMap state;
    maker.Run({}, state);
    for (uint64_t i : {1, 2}) {
      TensorMap feeds = Batch(i);
      feeds[kept.step.lr] = Tensor::Scalar(1e-2f);
      step.Run(feeds, state);
      TensorMap fresh = state, codes, want;
      for (const std::string& name : kept.step.weight_copies) {
        codes[name] = state.at(name);
        fresh.erase(name);
      }
      maker.Run({}, fresh);
      for (const auto& [name, tensor] : codes) want[name] = fresh.at(name);
      ExpectSame(codes, want);
    }
  }
}

int64_t UpdatesWithCodes(const KeptStep& kept) {
  int64_t updates = 0;
  for (const Node& node : kept.step.graph->nodes()) {
    updates += node.IsOurs("AdamW") && node.Has("to");
  }
  return updates;
}

// A scale of the weight itself, an update beside the backward and a part of a
// weight keep the quantizer behind the update.
TEST(PrimaryWeights, UpdatesMakeTheCodesOfDelayedScales) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const SessionOptions delayed = Options(model, "delayed");
  EXPECT_EQ(UpdatesWithCodes(KeptStep(delayed, {})), 2);
  EXPECT_EQ(UpdatesWithCodes(KeptStep(Options(model, "tensorwise"), {})), 0);
  SessionOptions other = delayed;
  other.optimizer.release_gradients = true;
  EXPECT_EQ(UpdatesWithCodes(KeptStep(other, {})), 0);
  other = delayed;
  other.shard.what = Sharding::kOptimizer;
  EXPECT_EQ(UpdatesWithCodes(KeptStep(other, {.dp = 2})), 0);
}

TEST(PrimaryWeights, UpdatesThatMakeCodesChangeNoBit) {
  TempDir dir;
  SessionOptions options =
      WithPrimary(Options(WriteMlp(dir, false), "delayed"));
  options.optimizer.moments = "bfloat16";
  for (const char* master : {"float32", "split8", "bfloat16"}) {
    SCOPED_TRACE(master);
    options.optimizer.master = master;
    options.skip_passes = {};
    const PrimaryRun joined = RunOf(options, FourSteps());
    options.skip_passes = {"JoinWeightCodes"};
    const PrimaryRun apart = RunOf(options, FourSteps());
    EXPECT_EQ(joined.losses, apart.losses);
    ExpectSame(joined.state, apart.state);
  }
}

// No copy is anywhere but in the state: the step writes the next ones there.
TEST(PrimaryWeights, TakeNoPartOfTheArena) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe : {"tensorwise", "rowwise", "delayed"}) {
    for (int64_t ranks : {1, 2}) {
      SCOPED_TRACE(Concat(recipe, " ", ranks));
      SessionOptions options = Options(model, recipe);
      if (ranks > 1) options.shard.what = Sharding::kOptimizer;
      KeptStep kept(options, {.dp = ranks});
      ASSERT_NE(kept.maker, nullptr);
      const Plan plan = MakePlan(*kept.step.graph, kept.provider->Kernels());
      CheckPlan(plan, *kept.step.graph, kept.provider->Kernels());
      size_t copies = 0;
      for (const Value* state : plan.states) {
        copies += state->role == Role::kWeightCopy ? BytesOf(*state) : 0;
      }
      EXPECT_GE(copies,
                static_cast<size_t>(kIn * kHidden + kHidden * kClasses));
      for (const Copy& copy : plan.after) {
        const Value* state = plan.slots[Index(copy.to)].value;
        EXPECT_NE(state->role, Role::kWeightCopy) << state->name;
      }
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
