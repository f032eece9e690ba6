// SPDX-License-Identifier: Apache-2.0
//
// The largest update of a step, which a session reports.
#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

constexpr double kMeasuredRate = 1e-2;

SessionOptions MeasuredOptions(const std::string& model,
                               const std::string& moments) {
  SessionOptions options = Options(model);
  options.optimizer.moments = moments;
  options.optimizer.weight_decay = 0;
  return options;
}

// By how much the weight that moved furthest moved.
double FurthestMove(const TensorMap& before, const TensorMap& after) {
  double furthest = 0;
  for (const auto& [name, tensor] : before) {
    for (int64_t i = 0; i < tensor.size(); ++i) {
      furthest = std::max(furthest, std::fabs(DoubleAt(tensor, i) -
                                              DoubleAt(after.at(name), i)));
    }
  }
  return furthest;
}

// Without weight decay weights move by nothing else.
TEST(UpdateAmax, IsTheFurthestMoveInUnitsOfTheRate) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const auto& [kind, moments, micro] :
       {std::tuple{"adamw", "bfloat16", 1}, std::tuple{"adam", "bfloat16", 2},
        std::tuple{"adamw_hf", "bfloat16", 1}, std::tuple{"adamw", "fp8", 1}}) {
    SCOPED_TRACE(Concat(kind, " ", moments, " ", micro));
    SessionOptions options = MeasuredOptions(model, moments);
    options.optimizer.kind = kind;
    options.grad_accum = micro;
    auto session = TrainingSession::Create(options);
    TensorMap before = Weights(*session, dir);
    for (uint64_t step = 1; step <= 3; ++step) {
      const Batches batches(static_cast<size_t>(micro), Batch(step));
      const float amax = session->Step(batches, kMeasuredRate).update_amax;
      const TensorMap after = Weights(*session, dir);
      EXPECT_NEAR(amax, FurthestMove(before, after) / kMeasuredRate, 1e-4)
          << step;
      // Each weight's first step is the rate.
      if (step == 1) {
        EXPECT_NEAR(amax, 1, 1e-4);
      }
      before = after;
    }
  }
}

TEST(UpdateAmax, NeitherPassesNorBodiesChangeIt) {
  TempDir dir;
  SessionOptions options = MeasuredOptions(WriteMlp(dir, false), "bfloat16");
  auto amaxes = [&] {
    auto session = TrainingSession::Create(options);
    std::vector<float> all;
    for (uint64_t step = 1; step <= 2; ++step) {
      all.push_back(session->Step(Batch(step), kMeasuredRate).update_amax);
    }
    return all;
  };
  const std::vector<float> joined = amaxes();
  options.skip_passes = {"JoinMoments"};
  EXPECT_EQ(amaxes(), joined);
  options.expand = {"UpdateAmax"};
  EXPECT_EQ(amaxes(), joined);
  options.skip_passes = {};
  options.expand = {};
  options.optimizer.release_gradients = true;
  EXPECT_EQ(amaxes(), joined);
}

TEST(UpdateAmax, IsMeasuredWhereMeansOfSquaresAreRounded) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  SessionOptions options = MeasuredOptions(model, "float32");
  EXPECT_EQ(TrainingSession::Create(options)
                ->Step(Batch(1), kMeasuredRate)
                .update_amax,
            -1);
  options = MeasuredOptions(model, "bfloat16");
  options.optimizer.kind = "sgd";
  options.optimizer.momentum = 0.9;
  EXPECT_EQ(TrainingSession::Create(options)
                ->Step(Batch(1), kMeasuredRate)
                .update_amax,
            -1);
}

TEST(UpdateAmax, ASkippedStepHasNoUpdate) {
  TempDir dir;
  SessionOptions options = MeasuredOptions(WriteMlp(dir, false), "bfloat16");
  options.optimizer.kind = "adamw_hf";  // divides by 0 before the first update
  TensorMap bad = Batch(1);
  bad.at("x").data<float>()[0] = std::numeric_limits<float>::infinity();
  const StepResult result =
      TrainingSession::Create(options)->Step(bad, kMeasuredRate);
  EXPECT_TRUE(result.skipped);
  EXPECT_EQ(result.update_amax, 0);
}

std::vector<float> AmaxesOf(const RankRun& run) {
  std::vector<float> all;
  for (const StepResult& step : run.steps) all.push_back(step.update_amax);
  return all;
}

// After the first step updates differ, and so do the maxima of ranks' parts.
TEST(UpdateAmax, IsThatOfAllRanksParts) {
  TempDir dir;
  SessionOptions options = MeasuredOptions(WriteMlp(dir, false), "bfloat16");
  const std::vector<Batches> steps = {{Batch(1)}, {Batch(2)}, {Batch(3)}};
  const auto whole = AmaxesOf(TrainRanks(2, options, steps)[0]);
  EXPECT_NEAR(whole[0], 1, 1e-4);
  options.shard.what = Sharding::kOptimizer;
  for (const RankRun& run : TrainRanks(2, options, steps)) {
    EXPECT_EQ(AmaxesOf(run), whole);
  }
  options.shard.what = Sharding::kNone;
  const auto divided = TrainRanks(Mesh{.tp = 2}, options, steps);
  EXPECT_EQ(AmaxesOf(divided[0]), AmaxesOf(divided[1]));
}

}  // namespace
}  // namespace onnx_fp8
