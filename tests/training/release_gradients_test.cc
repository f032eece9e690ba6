// SPDX-License-Identifier: Apache-2.0
//
// Sessions that update a parameter as soon as its gradient is known.
#include <cmath>
#include <limits>
#include <string>
#include <tuple>
#include <vector>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "onnx_fp8/option_error.h"
#include "tests/support/paths.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

SessionOptions GptOptions(const std::string& recipe, bool releases) {
  SessionOptions options =
      Options(SourcePath("samples/gpt_tiny/gpt_tiny.onnx"), recipe);
  options.optimizer.release_gradients = releases;
  return options;
}

class ReleaseGradients
    : public testing::TestWithParam<std::tuple<const char*, DType>> {};

INSTANTIATE_TEST_SUITE_P(
    Recipes, ReleaseGradients,
    testing::Combine(testing::Values("off", "tensorwise", "rowwise", "delayed",
                                     "mxfp8"),
                     testing::Values(DType::kFloat, DType::kBFloat16)),
    [](const auto& info) {
      return std::string(std::get<0>(info.param)) + "_" +
             Name(std::get<1>(info.param));
    });

// A short batch: gradients are most of the arena.
TEST_P(ReleaseGradients, KeepsAllBits) {
  const auto [recipe, dtype] = GetParam();
  TempDir dir;
  std::vector<float> losses[2], norms[2];
  TensorMap weights[2];
  size_t arena[2];
  for (int releases : {0, 1}) {
    SessionOptions options = GptOptions(recipe, releases);
    options.dtype = dtype;
    if (releases) options.recompute = {"blocks"};
    auto session = TrainingSession::Create(options);
    std::vector<Batches> steps = TokenSteps(1, 1);
    steps.resize(2);
    for (const Batches& batches : steps) {
      const StepResult result = session->Step(batches, 1e-3);
      EXPECT_FALSE(result.skipped) << result.cause;
      losses[releases].push_back(result.loss);
      norms[releases].push_back(result.grad_norm);
    }
    weights[releases] = Weights(*session, dir);
    arena[releases] = session->Memory().arena_bytes;
    EXPECT_EQ(session->ReportMemory().gradients_held_bytes > 0, !releases);
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(norms[0], norms[1]);
  ExpectSame(weights[0], weights[1]);
  EXPECT_LT(arena[1], 0.7 * static_cast<double>(arena[0]));
}

// No update waits for a norm: the gradients' memory is free as without
// clipping.
TEST(ReleasedGradients, TheNormOfTheStepBeforeClipsThem) {
  TempDir dir;
  struct Run {
    std::vector<float> losses, norms;
    TensorMap weights;
    size_t arena;
  };
  auto run = [&](bool clips, bool releases) {
    SessionOptions options = GptOptions("off", releases);
    if (releases) options.recompute = {"blocks"};
    if (clips) options.optimizer.clip_norm = 0.01;
    options.optimizer.clip_previous = clips;
    auto session = TrainingSession::Create(options);
    Run result;
    std::vector<Batches> steps = TokenSteps(1, 1);
    steps.resize(2);
    for (const Batches& batches : steps) {
      const StepResult step = session->Step(batches, 1e-3);
      result.losses.push_back(step.loss);
      result.norms.push_back(step.grad_norm);
    }
    result.weights = Weights(*session, dir);
    result.arena = session->Memory().arena_bytes;
    return result;
  };
  const Run late = run(true, false), early = run(true, true),
            unclipped = run(false, true);
  EXPECT_EQ(early.losses, late.losses);
  EXPECT_EQ(early.norms, late.norms);
  ExpectSame(early.weights, late.weights);
  EXPECT_FALSE(Same(early.weights, unclipped.weights));
  EXPECT_LT(early.arena, 0.7 * static_cast<double>(late.arena));
}

TEST(ReleasedGradients, KeepTheBitsOfRanks) {
  for (const char* recipe : {"off", "delayed"}) {
    for (Sharding what :
         {Sharding::kNone, Sharding::kGradients, Sharding::kParameters}) {
      std::vector<RankRun> runs[2];
      for (int releases : {0, 1}) {
        SessionOptions options = GptOptions(recipe, releases);
        options.shard.what = what;
        runs[releases] = TrainRanks(2, options, TokenSteps());
      }
      for (size_t i = 0; i < runs[0][0].steps.size(); ++i) {
        EXPECT_EQ(runs[0][0].steps[i].loss, runs[1][0].steps[i].loss);
        EXPECT_EQ(runs[0][0].steps[i].grad_norm, runs[1][0].steps[i].grad_norm);
      }
      ExpectSame(runs[0][0].weights, runs[1][0].weights);
    }
  }
}

// Classes are 1e10 · x w, with w zero: the loss is finite, and the gradient of
// the row of w that meets 3e38 is not.
std::string WriteSteep(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, 2});
  x->axis_names = {"batch", ""};
  Value* w = graph.AddInitializer("w", Tensor::Zeros(DType::kFloat, {2, 4}));
  Value* h = b.Op("MatMul", {x, w});
  graph.outputs.push_back(b.Mul(h, b.Scalar(1e10, h)));
  const std::string path = dir / "steep.onnx";
  WriteModel(graph, path);
  return path;
}

Tensor SteepWeight(TrainingSession& session, const TempDir& dir) {
  session.ExportOnnx(dir / "trained.onnx");
  return ReadModel(dir / "trained.onnx")->Find("w")->data.Clone();
}

TensorMap SteepBatch(float first) {
  return {{"x", Tensor::From<float>({2, 2}, {first, 1, first, 1})},
          {"labels", Tensor::From<int64_t>({2}, {0, 1})}};
}

TEST(ReleasedGradients, AWeightWhoseGradientIsNotFiniteStays) {
  TempDir dir;
  const std::string model = WriteSteep(dir);
  for (bool releases : {false, true}) {
    SessionOptions options = Options(model);
    options.optimizer.release_gradients = releases;
    auto session = TrainingSession::Create(options);
    const StepResult result = session->Step(SteepBatch(3e38f), 1e-12);
    EXPECT_TRUE(std::isfinite(result.loss));
    EXPECT_FALSE(std::isfinite(result.grad_norm));
    EXPECT_EQ(result.skipped, !releases);
    EXPECT_EQ(result.remark.find("kept their values") != std::string::npos,
              releases)
        << result.remark;
    const Tensor w = SteepWeight(*session, dir);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_EQ(DoubleAt(w, i) != 0, releases && i >= 4) << i;
    }
  }
}

TEST(ReleasedGradients, ALossThatIsNotFiniteSkipsTheStep) {
  TempDir dir;
  SessionOptions options = Options(WriteSteep(dir));
  options.optimizer.release_gradients = true;
  auto session = TrainingSession::Create(options);
  EXPECT_TRUE(
      session->Step(SteepBatch(std::numeric_limits<float>::infinity()), 1e-12)
          .skipped);
  const Tensor w = SteepWeight(*session, dir);
  for (int64_t i = 0; i < 8; ++i) EXPECT_EQ(DoubleAt(w, i), 0) << i;
}

TEST(ReleasedGradients, WhatNeedsAllGradientsIsRefused) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  auto refused = [&](auto change) {
    SessionOptions options = Options(model);
    options.optimizer.release_gradients = true;
    change(options);
    try {
      TrainingSession::Create(options)->Step(
          Batches(static_cast<size_t>(options.grad_accum), Batch(1)), 1e-2);
    } catch (const OptionError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_TRUE(refused([](SessionOptions& o) {
                o.grad_accum = 2;
              }).starts_with("`release_gradients`: expected `grad_accum` 1"));
  EXPECT_TRUE(refused([](SessionOptions& o) {
                o.dtype = DType::kFloat16;
              }).starts_with("`release_gradients`: expected `dtype` "));
  const std::string clipped =
      refused([](SessionOptions& o) { o.optimizer.clip_norm = 0.5; });
  EXPECT_TRUE(
      clipped.starts_with("`release_gradients`: expected no `clip_norm`"));
  EXPECT_TRUE(clipped.ends_with(
      "got 0.5; `clip_norm=0.5:previous` clips by the norm of the step "
      "before"));
}

}  // namespace
}  // namespace onnx_fp8
