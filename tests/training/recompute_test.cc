// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose backward computes again what the forward does not keep: bits
// are as without it.
#include <cmath>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/recipe_text.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/corpus.h"
#include "tests/support/left_out.h"
#include "tests/support/paths.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/corpus_case.h"
#include "tests/training/needed_memory.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"
#include "training/step/step_file.h"

namespace onnx_fp8 {
namespace {

using Choice = std::vector<std::string>;

SessionOptions GptOptions(const std::string& recipe, const Choice& recompute) {
  SessionOptions options =
      Options(SourcePath("samples/gpt_tiny/gpt_tiny.onnx"), recipe);
  options.recompute = recompute;
  return options;
}

std::vector<Batches> TwoSteps(size_t micro_batches) {
  std::vector<Batches> steps = TokenSteps(micro_batches, 4);
  steps.resize(2);
  return steps;
}

struct Outcome {
  std::vector<float> losses, norms;
  TensorMap weights;
  std::string remark;
};

Outcome Train(TrainingSession& session, const std::vector<Batches>& steps) {
  TempDir dir;
  Outcome outcome;
  for (const Batches& batches : steps) {
    const StepResult result = session.Step(batches, 1e-3);
    EXPECT_FALSE(result.skipped) << result.cause;
    outcome.losses.push_back(result.loss);
    outcome.norms.push_back(result.grad_norm);
    outcome.remark += result.remark;
  }
  outcome.weights = Weights(session, dir);
  return outcome;
}

void ExpectEqual(const Outcome& a, const Outcome& b) {
  EXPECT_EQ(a.losses, b.losses);
  EXPECT_EQ(a.norms, b.norms);
  ExpectSame(a.weights, b.weights);
}

class Recompute
    : public testing::TestWithParam<std::tuple<const char*, DType>> {};

INSTANTIATE_TEST_SUITE_P(
    Recipes, Recompute,
    testing::Combine(testing::Values("off", "tensorwise", "rowwise",
                                     "rowwise_with_gw_hp", "delayed",
                                     "blockwise", "mxfp8"),
                     testing::Values(DType::kFloat, DType::kBFloat16)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" +
             Name(std::get<1>(info.param));
    });

TEST_P(Recompute, KeepsAllBits) {
  const auto [recipe, dtype] = GetParam();
  Outcome outcomes[3];
  const Choice choices[] = {{"none"}, {"blocks"}, {"*"}};
  for (int i = 0; i < 3; ++i) {
    SessionOptions options = GptOptions(recipe, choices[i]);
    options.dtype = dtype;
    outcomes[i] = Train(*TrainingSession::Create(options), TwoSteps(1));
  }
  ExpectEqual(outcomes[0], outcomes[1]);
  ExpectEqual(outcomes[0], outcomes[2]);
  EXPECT_EQ(outcomes[0].remark.find("`recompute`"), std::string::npos);
  EXPECT_NE(outcomes[1].remark.find("`recompute`: "), std::string::npos);
}

TEST_P(Recompute, KeepsAllBitsOfMicroBatches) {
  const auto [recipe, dtype] = GetParam();
  Outcome outcomes[2];
  for (int i = 0; i < 2; ++i) {
    SessionOptions options = GptOptions(recipe, {i ? "blocks" : "none"});
    options.dtype = dtype;
    options.grad_accum = 2;
    outcomes[i] = Train(*TrainingSession::Create(options), TwoSteps(2));
  }
  ExpectEqual(outcomes[0], outcomes[1]);
}

// A checkpoint does not say what its run computed again.
TEST(RecomputedSteps, MayChangeWhenARunGoesOn) {
  const std::vector<Batches> steps = TokenSteps();
  const Outcome whole =
      Train(*TrainingSession::Create(GptOptions("delayed", {})), steps);
  TempDir dir;
  auto first = TrainingSession::Create(GptOptions("delayed", {"blocks"}));
  Train(*first, {steps.begin(), steps.begin() + 2});
  first->Save(dir / "run");
  auto second = TrainingSession::Create(GptOptions("delayed", {}));
  second->Restore(dir / "run");
  const Outcome rest = Train(*second, {steps.begin() + 2, steps.end()});
  ExpectSame(whole.weights, rest.weights);
}

TEST(RecomputedSteps, KeepsTheBitsOfRanks) {
  for (const char* recipe : {"off", "tensorwise", "rowwise"}) {
    for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.dp = 2, .tp = 2}}) {
      for (Sharding what : {Sharding::kNone, Sharding::kParameters}) {
        SCOPED_TRACE(std::string(recipe) + " " + ToString(mesh));
        std::vector<RankRun> runs[2];
        for (int i = 0; i < 2; ++i) {
          SessionOptions options = GptOptions(recipe, {i ? "blocks" : "none"});
          options.shard.what = what;
          runs[i] = TrainRanks(mesh, options, TokenSteps());
        }
        for (size_t step = 0; step < runs[0][0].steps.size(); ++step) {
          EXPECT_EQ(runs[0][0].steps[step].loss, runs[1][0].steps[step].loss);
        }
        ExpectSame(runs[0][0].weights, runs[1][0].weights);
      }
    }
  }
}

// Activations are most of the arena of a long batch.
TEST(RecomputedSteps, NeedLessMemory) {
  for (const char* recipe : {"off", "tensorwise", "rowwise"}) {
    size_t arena[2];
    for (int i : {0, 1}) {
      auto session =
          TrainingSession::Create(GptOptions(recipe, {i ? "blocks" : "none"}));
      session->Step(TokenSteps(1, 64)[0], 1e-3);
      arena[i] = session->Memory().arena_bytes;
    }
    EXPECT_LT(arena[1], 0.8 * static_cast<double>(arena[0])) << recipe;
  }
}

NeededMemory BytesOfStep(const SessionOptions& options,
                         const Batches& batches) {
  return MemoryNeeded(options, [&](const SessionOptions& own) {
    TrainingSession::Create(own)->Step(batches, 1e-3);
  });
}

TEST(RecomputedSteps, FitIntoMemoryWithTheSameBits) {
  const std::vector<Batches> steps = {TokenSteps(1, 64)[0]};
  for (const char* recipe : {"off", "tensorwise"}) {
    SCOPED_TRACE(recipe);
    SessionOptions options = GptOptions(recipe, {});
    const Outcome whole = Train(*TrainingSession::Create(options), steps);
    const NeededMemory needed = BytesOfStep(options, steps[0]);
    EXPECT_LT(needed.least, needed.most);
    const size_t middle = needed.halfway();
    for (size_t memory : {needed.least, middle, needed.most}) {
      options.memory = std::to_string(memory);
      const Outcome tight = Train(*TrainingSession::Create(options), steps);
      ExpectEqual(whole, tight);
      const bool same = memory == needed.most;
      const char* said =
          same ? "it fits as it is" : "run again in the backward: ";
      EXPECT_NE(tight.remark.find(said), std::string::npos) << tight.remark;
    }
    options.memory = std::to_string(needed.least / 2);
    EXPECT_THROW(TrainingSession::Create(options)->Step(steps[0], 1e-3), Error);
    // What the user chooses is only compared.
    options.memory = std::to_string(needed.most - 1);
    options.recompute = {"none"};
    EXPECT_THROW(TrainingSession::Create(options)->Step(steps[0], 1e-3), Error);
  }
}

// In bfloat16 a kernel rounds its result, which then has no memory in float32.
TEST(RecomputedSteps, NeverNeedMoreThanBlocks) {
  const Batches batches = TokenSteps(1, 64)[0];
  const std::pair<const char*, DType> cases[] = {
      {"off", DType::kFloat},
      {"off", DType::kBFloat16},
      {"tensorwise", DType::kBFloat16}};
  for (const auto& [recipe, dtype] : cases) {
    SCOPED_TRACE(Concat(recipe, " ", Name(dtype)));
    SessionOptions options = GptOptions(recipe, {});
    options.dtype = dtype;
    options.optimizer.release_gradients = true;
    const size_t least = BytesOfStep(options, batches).least;
    options.recompute = {"blocks"};
    EXPECT_LE(least, BytesOfStep(options, batches).most);
  }
}

TEST(RecomputedSteps, FitMicroBatchesIntoMemory) {
  SessionOptions options = GptOptions("tensorwise", {});
  options.grad_accum = 2;
  const std::vector<Batches> steps = {TokenSteps(2, 64)[0]};
  const NeededMemory needed = BytesOfStep(options, steps[0]);
  EXPECT_LT(needed.least, needed.most);
  const Outcome whole = Train(*TrainingSession::Create(options), steps);
  options.memory = std::to_string(needed.halfway());
  const Outcome tight = Train(*TrainingSession::Create(options), steps);
  ExpectEqual(whole, tight);
  EXPECT_NE(tight.remark.find("run again in the backward: "),
            std::string::npos);
}

// The second micro-batch reads the copies of weights that the first one made.
TEST(RecomputedSteps, CountTheCopiesOfMicroBatchesOnce) {
  SessionOptions options = GptOptions("tensorwise", {});
  options.grad_accum = 2;
  const Batches large = TokenSteps(2, 32)[0];
  options.memory = std::to_string(BytesOfStep(options, large).most);
  auto session = TrainingSession::Create(options);
  const Batches uneven = {large[0], TokenSteps(1, 16)[0][0]};
  const std::string remark = session->Step(uneven, 1e-3).remark;
  EXPECT_EQ(remark.find("run again"), std::string::npos) << remark;
}

// The session goes on with batches that fit.
TEST(RecomputedSteps, RefuseABatchThatIsTooLarge) {
  SessionOptions options = GptOptions("off", {});
  const Batches small = TokenSteps(1, 2)[0], large = TokenSteps(1, 512)[0];
  const size_t enough = BytesOfStep(options, small).most;
  EXPECT_LT(enough, BytesOfStep(options, large).least);
  options.memory = std::to_string(enough);
  auto session = TrainingSession::Create(options);
  session->Step(small, 1e-3);
  EXPECT_THROW(session->Step(large, 1e-3), Error);
  EXPECT_EQ(session->Step(small, 1e-3).step, 2);
}

// Its updates write into the state, which is more than all activations.
TEST(RecomputedSteps, OfAFileFitIntoMemory) {
  TempDir dir;
  StepFile(GptOptions("off", {}))
      .Write({{"input_ids", {16, 12}}}, {}, dir / "step.onnx");
  SessionOptions options;
  options.model = dir / "step.onnx";
  const NeededMemory needed = BytesOfStep(options, TokenSteps(1, 16)[0]);
  EXPECT_LT(needed.least, needed.most);
}

// A step that fills the memory, an evaluation, another size of batch, and the
// first step again.
TEST(RecomputedSteps, MakeRoomForOtherPlans) {
  SessionOptions options = GptOptions("off", {});
  const Batches batches = TokenSteps(1, 64)[0], small = TokenSteps(1, 8)[0];
  const size_t least = BytesOfStep(options, batches).least;
  std::vector<float> losses[2];
  std::string last;
  for (int i : {0, 1}) {
    options.memory = i ? std::to_string(least) : "";
    auto session = TrainingSession::Create(options);
    losses[i].push_back(session->Step(batches, 1e-3).loss);
    losses[i].push_back(session->Eval(batches[0]).loss);
    losses[i].push_back(session->Step(small, 1e-3).loss);
    const StepResult result = session->Step(batches, 1e-3);
    losses[i].push_back(result.loss);
    last = result.remark;
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(last.find("`memory`"), std::string::npos) << last;
}

TEST(RecomputedSteps, SayThatPlansAreDropped) {
  SessionOptions options = GptOptions("off", {});
  const Batches batches = TokenSteps(1, 16)[0];
  options.memory = std::to_string(BytesOfStep(options, batches).least);
  auto session = TrainingSession::Create(options);
  session->Step(batches, 1e-3);
  session->Eval(batches[0]);
  const std::string second = session->Step(batches, 1e-3).remark;
  EXPECT_NE(second.find("a plan was dropped"), std::string::npos) << second;
  // The choice is the one from before.
  EXPECT_EQ(second.find("run again"), std::string::npos) << second;
}

// The ranks have batches of 21, 21 and 22 samples, or of 32.
TEST(RecomputedSteps, FitIntoTheMemoryOfRanks) {
  const std::vector<Batches> steps = {TokenSteps(1, 64)[0]};
  for (const Mesh& mesh : {Mesh{.dp = 3}, Mesh{.dp = 2}, Mesh{.tp = 2}}) {
    for (Sharding what : {Sharding::kNone, Sharding::kParameters}) {
      if (mesh.dp != 2 && what != Sharding::kNone) continue;
      SCOPED_TRACE(ToString(mesh));
      SessionOptions options = GptOptions("tensorwise", {});
      options.shard.what = what;
      const std::vector<RankRun> whole = TrainRanks(mesh, options, steps);
      const NeededMemory needed = MemoryNeeded(
          options,
          [&](const SessionOptions& own) { TrainRanks(mesh, own, steps); });
      options.memory = std::to_string(needed.halfway());
      const std::vector<RankRun> tight = TrainRanks(mesh, options, steps);
      EXPECT_EQ(tight[0].steps[0].loss, whole[0].steps[0].loss);
      ExpectSame(tight[0].weights, whole[0].weights);
      EXPECT_NE(tight[0].steps[0].remark.find("run again in the backward: "),
                std::string::npos);
      if (what == Sharding::kNone) continue;
      // Parameters may no longer be gathered ahead.
      options.memory = std::to_string(needed.least);
      const std::vector<RankRun> least = TrainRanks(mesh, options, steps);
      EXPECT_EQ(least[0].steps[0].loss, whole[0].steps[0].loss);
      ExpectSame(least[0].weights, whole[0].weights);
    }
  }
}

// Sizes of the two ranks' batches, by step.
constexpr int64_t kUneven[][2] = {{16, 16}, {32, 8}, {16, 8}};

// The steps of two ranks that divide parameters, with batches of these sizes.
std::vector<StepResult> UnevenSteps(const SessionOptions& options) {
  std::vector<StepResult> results;
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    for (const auto& sizes : kUneven) {
      const int64_t size = sizes[world.rank()];
      const StepResult result = session->Step(TokenSteps(1, size)[0], 1e-3);
      if (world.rank() == 0) results.push_back(result);
    }
  });
  return results;
}

// The third step needs a plan on the first rank only. All plans have the choice
// of the second step, or else their collectives differ.
TEST(RecomputedSteps, RanksHaveOneChoice) {
  SessionOptions options = GptOptions("off", {});
  options.shard.what = Sharding::kParameters;
  const std::vector<StepResult> whole = UnevenSteps(options);
  const Batches large = TokenSteps(1, 64)[0];
  const NeededMemory needed =
      MemoryNeeded(options, [&](const SessionOptions& own) {
        TrainRanks(2, own, {large});  // 32 samples each
      });
  // With the least, the second step gathers in another order than the first.
  for (size_t bytes : {needed.halfway(), needed.least}) {
    SCOPED_TRACE(bytes);
    options.memory = std::to_string(bytes);
    const std::vector<StepResult> tight = UnevenSteps(options);
    ASSERT_EQ(tight.size(), whole.size());
    for (size_t i = 0; i < whole.size(); ++i) {
      EXPECT_EQ(tight[i].loss, whole[i].loss);
    }
    if (bytes == needed.least) break;
    EXPECT_NE(tight[1].remark.find("run again"), std::string::npos);
    EXPECT_EQ(tight[2].remark.find("run again"), std::string::npos);
  }
}

// The first search, too, counts the parts of moments that a rank keeps.
TEST(RecomputedSteps, CountTheMomentsOfDividedLayersInParts) {
  const Mesh mesh = {.tp = 2};
  const Batches batches = TokenSteps(2, 16)[0];
  SessionOptions options = GptOptions("off", {});
  options.grad_accum = 2;
  size_t held = 0;
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks(mesh, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    session->Step(batches, 1e-3);
    const MemoryInfo memory = session->Memory();
    // Weights, two moments and sums; the sums begin as constants.
    const size_t zeros = memory.state_bytes / 4;
    if (world.rank() == 0) {
      held = memory.state_bytes + zeros + memory.arena_bytes;
    }
  });
  const NeededMemory needed = MemoryNeeded(
      options,
      [&](const SessionOptions& own) { TrainRanks(mesh, own, {batches}); });
  // Whole moments would be two more of these five parts.
  EXPECT_LT(static_cast<double>(needed.most), 1.1 * static_cast<double>(held));
}

// As with `memory` auto on two machines.
TEST(RecomputedSteps, RanksHaveTheLeastOfTheirLimits) {
  RunRanks(2, [](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    SessionOptions options = GptOptions("off", {});
    options.memory = world.rank() == 0 ? "10GiB" : "1000";
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    try {
      session->Step(TokenSteps(1, 2)[0], 1e-3);
      ADD_FAILURE() << "rank " << world.rank() << " goes on";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("fits into 1000 bytes"),
                std::string::npos)
          << error.what();
    }
  });
}

// Encoders, decoders, convolutions, recurrences, dropout, statistics.
TEST(RecomputedSteps, KeepTheBitsOfCorpusFiles) {
  const std::vector<CorpusFile> files = WithVariants({"d18"});
  if (files.empty()) {
    LeaveOut("models of the corpus that compute again: there is no corpus");
    GTEST_SKIP();
  }
  for (const CorpusFile& file : files) {
    SCOPED_TRACE(file.name);
    CorpusCase one(file, BatchNormMode::kTrain);
    if (one.options.loss.kind.empty()) continue;
    Outcome outcomes[2];
    for (int i = 0; i < 2; ++i) {
      SessionOptions options = one.options;
      options.recipe = ParseRecipe("tensorwise");
      options.recompute = {i ? "blocks" : "none"};
      outcomes[i] = Train(*TrainingSession::Create(options), {{one.feeds}});
    }
    ExpectEqual(outcomes[0], outcomes[1]);
  }
}

TEST(RecomputedSteps, AGlobThatMatchesNoModuleIsAnError) {
  auto session = TrainingSession::Create(GptOptions("off", {"no.such*"}));
  try {
    session->Step(TokenSteps()[0], 1e-3);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("] `recompute` no.such* matches no module; one of its "
                        "modules is "),
              std::string::npos)
        << text;
  }
}

TEST(RecomputedSteps, SaysThatNothingRepeats) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.recompute = {"blocks"};
  auto session = TrainingSession::Create(options);
  EXPECT_NE(session->Step(Batch(1), 1e-2).remark.find("no layers repeat"),
            std::string::npos);
}

}  // namespace
}  // namespace onnx_fp8
