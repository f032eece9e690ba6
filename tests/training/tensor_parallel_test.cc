// SPDX-License-Identifier: Apache-2.0
//
// Ranks that divide layers against one process that computes them whole.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>

#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/paths.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/files.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"
#include "training/session/make_session.h"
#include "training/step/pipelines.h"
#include "training/step/step_graph.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

std::vector<Batches> SampleSteps() {
  std::vector<Batches> steps;
  for (uint64_t step = 0; step < 4; ++step) {
    steps.push_back({Batch(10 * step, 8)});
  }
  return steps;
}

// Losses and norms differ by the order of sums.
void ExpectNear(const RankRun& got, const RankRun& want, double first,
                double later) {
  ASSERT_EQ(got.steps.size(), want.steps.size());
  for (size_t i = 0; i < got.steps.size(); ++i) {
    SCOPED_TRACE(Concat("step ", i));
    const double band = i == 0 ? first : later;
    const StepResult &a = got.steps[i], &b = want.steps[i];
    EXPECT_FALSE(a.skipped) << a.cause;
    EXPECT_NEAR(a.loss, b.loss, band * std::abs(b.loss));
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 20 * band * b.grad_norm);
  }
}

std::string Gpt() { return SourcePath("tests/fixtures/nanogpt/d18.onnx"); }

TEST(TensorParallel, Mlp) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  const RankRun want = TrainSteps(options, SampleSteps());
  for (const Mesh& mesh : {Mesh{.tp = 2},
                           {.tp = 4},
                           {.dp = 2, .tp = 2},
                           {.replicate = 2, .tp = 2},
                           {.replicate = 2, .dp = 2}}) {
    SCOPED_TRACE(ToString(mesh));
    for (const RankRun& run : TrainRanks(mesh, options, SampleSteps())) {
      ExpectNear(run, want, 1e-6, 1e-5);
    }
  }
}

// Scales belong to whole tensors, so FP8 differs by the order of sums, too.
// (The scales of rowwise are powers of two, so parts of a row round alike.)
TEST(TensorParallel, Transformer) {
  for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
    for (const char* recipe : {"off", "tensorwise", "rowwise"}) {
      SCOPED_TRACE(Concat(recipe, " ", Name(dtype)));
      SessionOptions options = Options(Gpt(), recipe);
      options.dtype = dtype;
      const RankRun want = TrainSteps(options, TokenSteps());
      for (const RankRun& run : TrainRanks({.tp = 2}, options, TokenSteps())) {
        ExpectNear(run, want, 1e-6, 1e-5);
      }
    }
  }
}

// Each rank has some heads and all tokens, whose segments it reads whole: as an
// operand of attention, and as a mask in front of a Softmax.
TEST(TensorParallel, DocumentsInRows) {
  std::vector<Batches> steps = TokenSteps();
  for (Batches& batches : steps) {
    Tensor segments = Tensor::Allocate(DType::kInt32, {4, 12});
    for (int64_t i = 0; i < segments.size(); ++i) {
      segments.data<int32_t>()[i] = static_cast<int32_t>(i / 5);
    }
    batches[0]["segment_ids"] = segments;
  }
  SessionOptions options = Options(Gpt());
  const RankRun others = TrainSteps(options, TokenSteps());
  options.segment_ids = "segment_ids";
  for (const std::vector<std::string>& skipped :
       {std::vector<std::string>{}, {"FuseAttention"}}) {
    options.skip_passes = skipped;
    const RankRun want = TrainSteps(options, steps);
    EXPECT_NE(want.steps[0].loss, others.steps[0].loss);
    for (const RankRun& run : TrainRanks({.tp = 2}, options, steps)) {
      ExpectNear(run, want, 1e-6, 1e-5);
    }
  }
}

// Each rank has a half of each sample: two ranks do not divide three samples.
// With one sample of 12 tokens five ranks divide neither.
TEST(TensorParallel, PartsOfSamples) {
  for (const char* recipe : {"off", "tensorwise"}) {
    const SessionOptions options = Options(Gpt(), recipe);
    for (int64_t samples : {3, 1}) {
      const auto steps = TokenSteps(1, samples);
      const RankRun want = TrainSteps(options, steps);
      ExpectNear(TrainRanks({.tp = 2}, options, steps)[1], want, 1e-6, 1e-5);
    }
  }
}

// Bytes of activations and their gradients that a rank receives in a step.
WireBytes BytesOfActivations(const SessionOptions& options) {
  WireBytes bytes;
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.tp = 2}, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    // The second step of delayed scaling is planned anew.
    for (int i : {0, 1}) session->Step(TokenSteps()[i], 1e-2);
    const WireBytes before = world.wire_bytes();
    session->Step(TokenSteps()[2], 1e-2);
    const WireBytes& after = world.wire_bytes();
    if (world.rank() == 1) return;
    bytes = {after.all_reduce - before.all_reduce,
             after.all_gather - before.all_gather,
             after.reduce_scatter - before.reduce_scatter, 0};
  });
  return bytes;
}

// The fixture has 2 blocks of width 32, and 48 tokens. In front of 2 layers of
// each block and of the last layer the rank receives the other half of the
// tokens; in the backward, behind the other 2 layers of each block, and
// behind the embedding.
TEST(TensorParallel, BytesOnTheWire) {
  constexpr int64_t kHalf = 48 * 32 / 2, kGathers = 2 * 2 + 1 + 2 * 2,
                    kOfEmbedding = 1;
  SessionOptions options = Options(Gpt());
  WireBytes bytes = BytesOfActivations(options);
  EXPECT_EQ(bytes.all_gather, 4 * kHalf * (kGathers + kOfEmbedding));
  // Sums travel as floats, the other way.
  EXPECT_EQ(bytes.reduce_scatter, 4 * kHalf * (kGathers + kOfEmbedding));
  options.dtype = DType::kBFloat16;
  bytes = BytesOfActivations(options);
  EXPECT_EQ(bytes.all_gather, 2 * kHalf * kGathers + 4 * kHalf * kOfEmbedding);
  options = Options(Gpt(), "tensorwise");
  bytes = BytesOfActivations(options);
  EXPECT_EQ(bytes.all_gather, kHalf * kGathers + 4 * kHalf * kOfEmbedding);
  options = Options(Gpt(), "delayed");
  EXPECT_EQ(BytesOfActivations(options).all_gather, bytes.all_gather);
}

// In FP8 only first steps are near: later on, a weight that differs in its last
// bit may round to another code.
TEST(TensorParallel, Llama) {
  std::string file = SourcePath("tests/fixtures/llama/d18.onnx");
  SessionOptions options = Options(file);
  ExpectNear(TrainRanks({.tp = 2}, options, TokenSteps())[0],
             TrainSteps(options, TokenSteps()), 1e-6, 1e-5);
  options = Options(file, "tensorwise");
  for (const Batches& batches : TokenSteps()) {
    const RankRun want = TrainSteps(options, {batches});
    ExpectNear(TrainRanks({.tp = 2}, options, {batches})[0], want, 1e-6, 1e-5);
  }
}

TEST(TensorParallel, MicroBatchesAndClipping) {
  for (const char* recipe : {"off", "tensorwise"}) {
    SessionOptions options = Options(Gpt(), recipe);
    options.grad_accum = 2;
    options.optimizer.clip_norm = 0.5;
    const RankRun want = TrainSteps(options, TokenSteps(2));
    const auto runs = TrainRanks({.tp = 2}, options, TokenSteps(2));
    ExpectNear(runs[1], want, 1e-6, 1e-5);
  }
}

// Each rank has a part of the rows of its part of a layer.
TEST(TensorParallel, BesideDataRanks) {
  for (const char* recipe : {"off", "tensorwise", "delayed"}) {
    SCOPED_TRACE(recipe);
    SessionOptions options = Options(Gpt(), recipe);
    // Ranks with other samples have scales of their own.
    const auto want = TrainRanks({.dp = 2}, options, TokenSteps());
    const auto whole = TrainRanks({.dp = 2, .tp = 2}, options, TokenSteps());
    if (recipe != std::string("delayed")) {
      ExpectNear(whole[3], want[0], 1e-6, 1e-5);
    }
    options.shard.what = Sharding::kParameters;
    const auto parts = TrainRanks({.dp = 2, .tp = 2}, options, TokenSteps());
    ExpectSame(parts[3].weights, whole[3].weights);
  }
}

struct TpSaved {
  TensorMap weights;
  RankRun run;
};

// Restores from `from`, if it is not empty, trains, and saves in `to`.
TpSaved TpTrainAndSave(const Mesh& mesh, Sharding what, const std::string& from,
                       const std::string& to) {
  TpSaved saved;
  RunRanks(static_cast<int>(mesh.ranks()), [&](Communicator& world) {
    SessionOptions options = Options(Gpt(), "delayed");
    options.shard.what = what;
    const MeshRanks ranks(mesh, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    if (!from.empty()) session->Restore(from);
    RankRun run;
    for (const Batches& step : TokenSteps()) {
      Batches mine = {ShareOf(step[0], ranks.data_rank(), mesh.data_ranks())};
      run.steps.push_back(session->Step(mine, 1e-2));
    }
    TempDir dir;
    const TensorMap weights = Weights(*session, dir);
    const bool shares = what != Sharding::kNone || mesh.tp > 1;
    if (shares || world.rank() == 0) session->Save(to);
    world.Barrier();
    if (world.rank() == 0) saved = {weights, run};
  });
  return saved;
}

TensorMap WeightsIn(const std::string& folder) {
  TempDir dir;
  auto session = TrainingSession::Create(Options(Gpt(), "delayed"));
  session->Restore(folder);
  return Weights(*session, dir);
}

// From one mesh to another: the same weights, and the same steps behind them.
TEST(TensorParallel, AnyMeshReadsACheckpoint) {
  TempDir dir;
  struct Run {
    Mesh mesh;
    Sharding what = Sharding::kNone;
  };
  const std::vector<Run> runs = {{{}},
                                 {{.tp = 2}},
                                 {{.dp = 2, .tp = 2}, Sharding::kParameters},
                                 {{.dp = 3}, Sharding::kOptimizer},
                                 {{.replicate = 2, .tp = 2}}};
  for (size_t i = 0; i < runs.size(); ++i) {
    const std::string from = dir / Concat("from", i);
    const TpSaved first = TpTrainAndSave(runs[i].mesh, runs[i].what, "", from);
    ExpectSame(WeightsIn(from), first.weights);
    std::optional<RankRun> want;
    for (size_t j = 0; j < runs.size(); ++j) {
      SCOPED_TRACE(
          Concat(ToString(runs[i].mesh), " to ", ToString(runs[j].mesh)));
      const std::string to = dir / Concat("to", i, j);
      const TpSaved next = TpTrainAndSave(runs[j].mesh, runs[j].what, from, to);
      ExpectSame(WeightsIn(to), next.weights);
      if (!want) want = next.run;
      ExpectNear(next.run, *want, 1e-6, 1e-4);
    }
  }
}

// Outputs are joined, also where the ranks have parts of the classes; ignored
// labels do not count.
TEST(TensorParallel, Evaluates) {
  SessionOptions options = Options(Gpt(), "tensorwise");
  TensorMap batch = TokenSteps()[0][0];
  for (int64_t i = 0; i < 20; ++i) {
    batch["labels"].data<int64_t>()[3 * i % 48] = -100;
  }
  const EvalResult want = TrainingSession::Create(options)->Eval(batch);
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.tp = 2}, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    for (int i = 0; i < 2; ++i) {
      const EvalResult got = session->Eval(batch);
      EXPECT_NEAR(got.loss, want.loss, 1e-6 * want.loss);
      const Tensor &a = got.outputs.at("logits"),
                   &b = want.outputs.at("logits");
      ASSERT_EQ(a.shape(), b.shape());
      for (int64_t j = 0; j < a.size(); ++j) {
        ASSERT_NEAR(a.data<float>()[j], b.data<float>()[j], 1e-5);
      }
    }
    ExpectError([&] { session->Gradients(batch, false); },
                "expected whole state for the gradients of a batch, got parts");
  });
}

TEST(TensorParallel, NeedsTheSameBitsOnAllRanks) {
  SessionOptions tune = Options(Gpt()), any_order = tune;
  tune.provider_options.tune = true;
  any_order.provider_options.nondeterministic = true;
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.tp = 2}, world);
    ExpectError([&] { MakeSession(tune, MakeCpuProvider(), &ranks); },
                "`tune`: expected ranks that compute whole layers (tp=1), got "
                "tp=2");
    ExpectError([&] { MakeSession(any_order, MakeCpuProvider(), &ranks); },
                "`nondeterministic`: expected ranks that compute whole layers");
  });
}

// Each rank has a part of the table's 61 rows, and of the classes.
TEST(TensorParallel, RefusesIdsAndLabelsThatOneProcessRefuses) {
  const SessionOptions options = Options(Gpt());
  struct Case {
    const char* input;
    int64_t id;
    const char* error;
  };
  for (const Case& c :
       {Case{"input_ids", 61, "] expected indices in -61…60, got 61"},
        {"input_ids", -62, "] expected indices in -61…60, got -62"},
        {"labels", 61,
         "] expected labels in 0 … 60 or -100 (left out), got "
         "61"},
        {"labels", -1,
         "] expected labels in 0 … 60 or -100 (left out), got "
         "-1"}}) {
    auto steps = TokenSteps();
    steps.resize(1);
    steps[0][0][c.input].data<int64_t>()[5] = c.id;
    ExpectError([&] { TrainSteps(options, steps); }, c.error);
    for (int tp : {2, 3}) {
      ExpectError([&] { TrainRanks({.tp = tp}, options, steps); }, c.error);
    }
  }
}

// Indices below 0 count from the end; a label that does not count may be any.
TEST(TensorParallel, IdsFromTheEndAndIgnoredLabels) {
  const SessionOptions options = Options(Gpt());
  auto steps = TokenSteps();
  for (Batches& step : steps) {
    for (int64_t i : {0, 7, 20}) {
      step[0]["input_ids"].data<int64_t>()[i] -= 61;
      step[0]["labels"].data<int64_t>()[i] = -100;
    }
  }
  const RankRun want = TrainSteps(options, steps);
  for (int tp : {2, 3}) {
    ExpectNear(TrainRanks({.tp = tp}, options, steps)[0], want, 1e-6, 1e-5);
  }
}

// One rank holds the row. All ranks must get the gradients in front of it.
TEST(TensorParallel, OneRowOfADividedAxis) {
  TempDir dir;
  Graph graph;
  Builder b(graph);
  auto weight = [&](const char* name, const Shape& shape, uint64_t seed) {
    return graph.AddInitializer(name, Random(shape, seed));
  };
  Value* x = graph.AddInput("x", DType::kFloat, Shape{6, kIn});
  x = b.Op("Tanh", {b.Op("MatMul", {x, weight("a.weight", {kIn, 4}, 1)})});
  x = b.Op("MatMul", {x, weight("b.weight", {4, 6}, 2)});
  x = b.Op("Gather", {b.Op("Transpose", {x}), b.Ints({1})});
  x = b.Op("Transpose", {x});
  x = b.Op("MatMul", {x, weight("c.weight", {1, kClasses}, 3)});
  graph.outputs = {x};
  WriteModel(graph, dir / "m.onnx");
  const SessionOptions options = Options(dir / "m.onnx");
  const std::vector<Batches> steps = {{Batch(1)}, {Batch(2)}};
  const RankRun want = TrainSteps(options, steps);
  for (int tp : {2, 3}) {
    ExpectNear(TrainRanks({.tp = tp}, options, steps)[0], want, 1e-6, 1e-5);
  }
}

// An earlier step had all parameters whole.
TEST(TensorParallel, LaterBatchesDivideAlike) {
  TempDir dir;
  const SessionOptions options = Options(WriteMlp(dir, false));
  PassRunner runner = MakePassRunner(options);
  const TrainingModel model = LoadTrainingModel(options, runner);
  const auto evaluator = MakeEvaluator();
  const StepSource source =
      MakeStepSource(options, model, *evaluator, runner, {.tp = 2});
  StepLayout layout;
  layout.splits.emplace();
  ExpectError(
      [&] {
        BuildStepGraph(source, StepKind::kTrain,
                       {{"x", {6, kIn}}, {"labels", {6}}}, false, {}, {},
                       layout);
      },
      "expected the ranks of the axis tp to divide fc.weight as in the first "
      "step: batches of these sizes need it divided");
}

TEST(TensorParallel, NothingToDivide) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.skip_passes = {"FuseLoss"};
  ExpectError([&] { TrainRanks({.tp = 3}, options, SampleSteps()); },
              "expected layers that 3 ranks of the axis tp can divide, got "
              "none in 2: `inspect()` with `mesh` tells why");
}

}  // namespace
}  // namespace onnx_fp8
