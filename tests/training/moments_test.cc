// SPDX-License-Identifier: Apache-2.0
//
// Sessions that keep moments as bfloat16.
#include <limits>
#include <map>
#include <string>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"
#include "training/ranks/sharded_state.h"
#include "training/step/pipelines.h"
#include "training/step/step_graph.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

SessionOptions NarrowMoments(const std::string& model) {
  SessionOptions options = Options(model);
  options.optimizer.moments = "bfloat16";
  options.seed = 5;
  return options;
}

TensorMap CopyOfState(TrainingSession& session) {
  TensorMap copy;
  for (const auto& [name, tensor] : session.State().tensors) {
    copy[name] = tensor.Clone();
  }
  return copy;
}

// After steps 1, 2, …, each on a batch of its own.
TensorMap StateAfterSteps(const SessionOptions& options, uint64_t steps = 3) {
  auto session = TrainingSession::Create(options);
  for (uint64_t step = 1; step <= steps; ++step) {
    session->Step(Batches(static_cast<size_t>(options.grad_accum), Batch(step)),
                  1e-2);
  }
  return CopyOfState(*session);
}

TEST(NarrowMoments, TheStateHasFourBytesLessForEachParameter) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const TensorMap state = StateAfterSteps(NarrowMoments(model), 1);
  for (const char* weight : {"fc.weight", "out.weight"}) {
    for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
      EXPECT_EQ(state.at(weight + std::string(moment)).dtype(),
                DType::kBFloat16);
    }
  }
  EXPECT_EQ(IntAt(state.at("optimizer.seed"), 0), 5);
  size_t bytes[2];
  for (int narrow : {0, 1}) {
    SessionOptions options = narrow ? NarrowMoments(model) : Options(model);
    auto session = TrainingSession::Create(options);
    session->Step(Batch(1), 1e-2);
    bytes[narrow] = session->Memory().state_bytes;
  }
  constexpr size_t kParameters = kIn * kHidden + kHidden * kClasses;
  const size_t seed = sizeof(int64_t);
  EXPECT_EQ(bytes[0] - bytes[1], 4 * kParameters - seed);
}

TEST(NarrowMoments, ARestoredRunGoesOnWithTheSameBits) {
  TempDir dir;
  SessionOptions options = NarrowMoments(WriteMlp(dir, false));
  const TensorMap straight = StateAfterSteps(options);
  auto begun = TrainingSession::Create(options);
  for (uint64_t step : {1, 2}) begun->Step(Batch(step), 1e-2);
  begun->Save(dir / "run");
  // The checkpoint has the seed of the draws.
  options.seed = 99;
  auto resumed = TrainingSession::Create(options);
  resumed->Restore(dir / "run");
  resumed->Step(Batch(3), 1e-2);
  ExpectSame(CopyOfState(*resumed), straight);
}

TEST(NarrowMoments, ACheckpointOfOtherMomentsIsRefused) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (bool narrow : {false, true}) {
    SessionOptions wide = Options(model), other = NarrowMoments(model);
    if (narrow) std::swap(wide, other);
    auto begun = TrainingSession::Create(wide);
    begun->Step(Batch(1), 1e-2);
    begun->Save(dir / "run");
    auto resumed = TrainingSession::Create(other);
    ExpectError(
        [&] {
          resumed->Restore(dir / "run");
          resumed->Step(Batch(2), 1e-2);
        },
        narrow ? "bfloat16" : "float");
  }
}

// Nothing would change them, and each checkpoint would have them.
TEST(Moments, OfTheOptimizerBeforeAreDropped) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.optimizer.moments = "bfloat16";
  auto begun = TrainingSession::Create(options);
  begun->Step(Batch(1), 1e-2);
  begun->Save(dir / "run");
  options.optimizer.kind = "sgd";
  options.optimizer.momentum = 0.9;
  options.optimizer.moments = "float32";
  auto resumed = TrainingSession::Create(options);
  resumed->Restore(dir / "run");
  const std::string said =
      "`optimizer=sgd`: 4 moments of the optimizer before are dropped";
  EXPECT_NE(resumed->Step(Batch(2), 1e-2).remark.find(said), std::string::npos);
  const TensorMap state = CopyOfState(*resumed);
  for (const std::string weight : {"fc.weight", "out.weight"}) {
    EXPECT_TRUE(state.contains(weight + ".momentum_buffer"));
    EXPECT_FALSE(state.contains(weight + ".exp_avg"));
    EXPECT_FALSE(state.contains(weight + ".exp_avg_sq"));
  }
  resumed->Save(dir / "run");
  auto again = TrainingSession::Create(options);
  again->Restore(dir / "run");
  EXPECT_EQ(again->Step(Batch(3), 1e-2).remark.find("dropped"),
            std::string::npos);
}

TEST(NarrowMoments, NeitherTheirPassNorBodiesChangeABit) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const std::pair<const char*, int64_t> cases[] = {
      {"adamw", 1}, {"adamw", 2}, {"adamw_hf", 1}, {"sgd", 1}};
  for (auto [kind, micro_batches] : cases) {
    SessionOptions options = NarrowMoments(model);
    options.optimizer.kind = kind;
    if (kind == std::string("sgd")) options.optimizer.momentum = 0.9;
    options.grad_accum = micro_batches;
    SCOPED_TRACE(Concat(kind, " ", micro_batches));
    const TensorMap joined = StateAfterSteps(options, 2);
    options.skip_passes = {"JoinMoments"};
    ExpectSame(StateAfterSteps(options, 2), joined);
    options.expand = {"RoundStochastic"};
    ExpectSame(StateAfterSteps(options, 2), joined);
    options.skip_passes = {};
    options.expand = {"AdamW", "SGDMomentum"};
    ExpectSame(StateAfterSteps(options, 2), joined);
  }
}

TEST(NarrowMoments, ReleasedGradientsKeepAllBits) {
  TempDir dir;
  for (const char* kind : {"adamw", "adamw_hf"}) {
    SessionOptions options = NarrowMoments(WriteMlp(dir, false));
    options.optimizer.kind = kind;
    const TensorMap held = StateAfterSteps(options);
    options.optimizer.release_gradients = true;
    ExpectSame(StateAfterSteps(options), held);
    options.skip_passes = {"JoinMoments"};
    ExpectSame(StateAfterSteps(options), held);
  }
}

TEST(NarrowMoments, ASkippedStepKeepsAllBits) {
  TempDir dir;
  for (bool releases : {false, true}) {
    SessionOptions options = NarrowMoments(WriteMlp(dir, false));
    options.optimizer.release_gradients = releases;
    auto session = TrainingSession::Create(options);
    session->Step(Batch(1), 1e-2);
    TensorMap before = CopyOfState(*session);
    TensorMap bad = Batch(2);
    bad.at("x").data<float>()[0] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(session->Step(bad, 1e-2).skipped);
    TensorMap after = CopyOfState(*session);
    EXPECT_EQ(IntAt(after.at("optimizer.skipped"), 0), 1);
    before.erase("optimizer.skipped");
    after.erase("optimizer.skipped");
    ExpectSame(after, before);
    // The next update has the number and so the draws that it would have had.
    session->Step(Batch(3), 1e-2);
    auto without = TrainingSession::Create(options);
    for (uint64_t step : {1, 3}) without->Step(Batch(step), 1e-2);
    TensorMap want = CopyOfState(*without), got = CopyOfState(*session);
    want.erase("optimizer.skipped");
    got.erase("optimizer.skipped");
    ExpectSame(got, want);
  }
}

TEST(NarrowMoments, TheSeedDecides) {
  TempDir dir;
  SessionOptions options = NarrowMoments(WriteMlp(dir, false));
  const TensorMap first = StateAfterSteps(options);
  ExpectSame(StateAfterSteps(options), first);
  options.seed = 6;
  const TensorMap second = StateAfterSteps(options);
  EXPECT_FALSE(Identical(first.at("fc.weight.exp_avg_sq"),
                         second.at("fc.weight.exp_avg_sq")));
}

// Layers of 5 × 7 and 7 × 3, whose rows no two ranks divide.
std::string WriteOddLayers(const TempDir& dir) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, 5});
  x->axis_names = {"batch", ""};
  Value* fc = graph.AddInitializer("fc.weight", Random({5, 7}, 1));
  Value* out = graph.AddInitializer("out.weight", Random({7, 3}, 2));
  graph.outputs = {
      b.Op("MatMul", {b.Op("Relu", {b.Op("MatMul", {x, fc})}), out})};
  const std::string path = dir / "odd.onnx";
  WriteModel(graph, path);
  return path;
}

// Four samples, as often as there are ranks: each rank's gradient is a fraction
// of the whole one, and their sum is exact.
std::vector<Batches> EqualShares(int64_t ranks) {
  std::vector<Batches> steps;
  for (uint64_t step = 0; step < 3; ++step) {
    const Tensor x = Random({4, 5}, step + 10);
    Tensor all = Tensor::Allocate(DType::kFloat, {4 * ranks, 5});
    Tensor labels = Tensor::Allocate(DType::kInt64, {4 * ranks});
    for (int64_t i = 0; i < all.size(); ++i) {
      all.data<float>()[i] = x.data<float>()[i % x.size()];
    }
    for (int64_t i = 0; i < labels.size(); ++i) {
      labels.data<int64_t>()[i] = i % 4 % 3;
    }
    steps.push_back({{{"x", all}, {"labels", labels}}});
  }
  return steps;
}

// The second and the third step read what the draws have made.
TEST(NarrowMoments, RanksThatDivideStateDrawAsOneDoes) {
  TempDir dir;
  SessionOptions options = NarrowMoments(WriteOddLayers(dir));
  const TensorMap want = TrainSteps(options, EqualShares(1)).weights;
  options.seed = 6;
  EXPECT_FALSE(Same(TrainSteps(options, EqualShares(1)).weights, want));
  options.seed = 5;
  for (Sharding what : {Sharding::kNone, Sharding::kOptimizer,
                        Sharding::kGradients, Sharding::kParameters}) {
    options.shard.what = what;
    ExpectSame(TrainRanks(2, options, EqualShares(2))[0].weights, want);
  }
}

// The graphs of a mesh's ranks say where their parts lie.
TEST(NarrowMoments, EachRanksStepHasThePlacesOfItsParts) {
  TempDir dir;
  SessionOptions options = NarrowMoments(WriteMlp(dir, false));
  options.shard.what = Sharding::kOptimizer;
  constexpr Mesh kMesh{.dp = 3, .tp = 2};
  auto evaluator = MakeEvaluator();
  int divided = 0;
  for (int64_t rank = 0; rank < kMesh.ranks(); ++rank) {
    const int64_t tensor_rank = rank % kMesh.tp, data_rank = rank / kMesh.tp;
    PassRunner runner = MakePassRunner(options);
    const TrainingModel model = LoadTrainingModel(options, runner);
    const StepGraph step =
        BuildStepGraph(MakeStepSource(options, model, *evaluator, runner, kMesh,
                                      tensor_rank, data_rank),
                       StepKind::kTrain, {{"x", {6, kIn}}});
    for (const char* weight : {"fc.weight", "out.weight"}) {
      Shard shard{.whole = *model.graph->Find(weight)->shape};
      shard.part = shard.whole;
      const auto split = step.splits.find(weight);
      if (split != step.splits.end()) {
        ++divided;
        shard.part = PartOf(shard.whole, split->second, kMesh.tp);
      }
      const Shape whole = shard.whole;
      shard = ShardOf(shard.part, data_rank, kMesh.dp);
      shard.whole = whole;
      if (split != step.splits.end()) {
        shard.tensor_part = {split->second, tensor_rank, kMesh.tp};
      }
      const ElementPlaces places = PlacesOf(shard);
      const Value* state =
          step.graph->Find(weight + std::string(".exp_avg_sq"));
      ASSERT_NE(state, nullptr);
      EXPECT_EQ(*state->shape, shard.part) << weight;
      for (const StateBinding& binding : step.graph->state) {
        if (binding.state != state) continue;
        const Node& node = *binding.next->producer;
        ASSERT_TRUE(node.IsOurs("RoundStochastic"));
        EXPECT_EQ(node.Int("shift", -1), places.shift) << weight << rank;
        EXPECT_EQ(node.Int("row", -1), places.run) << weight << rank;
        EXPECT_EQ(node.Int("stride", -1), places.stride) << weight << rank;
        EXPECT_EQ(node.Int("begin", -1), places.begin) << weight << rank;
      }
    }
  }
  EXPECT_EQ(divided, 2 * kMesh.ranks());
}

}  // namespace
}  // namespace onnx_fp8
