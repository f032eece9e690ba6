// SPDX-License-Identifier: Apache-2.0
//
// Sessions that keep averages of their weights.
#include "optimizers/ema.h"

#include <limits>
#include <optional>
#include <string>

#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

constexpr double kEmaDecay = 0.75;
constexpr const char* kAveragedWeights[] = {"fc.weight", "out.weight"};

SessionOptions EmaOptions(const std::string& model) {
  SessionOptions options = Options(model);
  options.optimizer.ema = kEmaDecay;
  options.seed = 5;
  return options;
}

TensorMap ClonesOf(const TensorMap& tensors) {
  TensorMap clones;
  for (const auto& [name, tensor] : tensors) clones[name] = tensor.Clone();
  return clones;
}

// A loop over the formula; the first weights are copied.
class EmaLoop {
 public:
  void Take(const TensorMap& weights) {
    for (const char* name : kAveragedWeights) {
      const Tensor& w = weights.at(name);
      auto [it, is_first] = averages_.try_emplace(name, w.Clone());
      if (is_first) continue;
      for (int64_t i = 0; i < w.size(); ++i) {
        float& x = it->second.data<float>()[i];
        const float distance = w.data<float>()[i] - x;
        x = x + distance * static_cast<float>(1 - kEmaDecay);
      }
    }
  }
  const TensorMap& averages() const { return averages_; }

 private:
  TensorMap averages_;
};

TensorMap AveragesIn(const TensorMap& state) {
  TensorMap averages;
  for (const char* name : kAveragedWeights) {
    averages[name] = state.at(name + std::string(kEma)).Clone();
  }
  return averages;
}

void StepOn(TrainingSession& session, uint64_t number) {
  const auto batches = static_cast<size_t>(session.Options().grad_accum);
  session.Step(Batches(batches, Batch(number)), 1e-2);
}

void ExpectAveragesOfWeights(const SessionOptions& options) {
  auto session = TrainingSession::Create(options);
  EmaLoop loop;
  for (uint64_t step = 1; step <= 3; ++step) {
    StepOn(*session, step);
    loop.Take(session->ReadWeights());
    ExpectSame(AveragesIn(session->State().tensors), loop.averages());
  }
}

// With `split` the weights are the floats that the update has made.
TEST(EmaSession, AveragesWhatUpdatesMake) {
  TempDir dir;
  const SessionOptions options = EmaOptions(WriteMlp(dir, false));
  ExpectAveragesOfWeights(options);
  SessionOptions other = options;
  other.grad_accum = 2;
  ExpectAveragesOfWeights(other);
  other = options;
  other.optimizer.master = "split";
  other.optimizer.moments = "bfloat16";
  ExpectAveragesOfWeights(other);
  other = options;
  other.optimizer.release_gradients = true;
  ExpectAveragesOfWeights(other);
  other = options;
  other.recipe = ParseRecipe("tensorwise");
  other.primary_weights = "fp8";
  ExpectAveragesOfWeights(other);
}

TEST(EmaSession, TheTrainedWeightsAreTheSameWithIt) {
  TempDir dir;
  SessionOptions options = EmaOptions(WriteMlp(dir, false));
  for (const char* master : {"float32", "bfloat16", "split8"}) {
    options.optimizer.master = master;
    TensorMap weights[2];
    for (int with : {0, 1}) {
      options.optimizer.ema = with * kEmaDecay;
      auto session = TrainingSession::Create(options);
      for (uint64_t step : {1, 2}) StepOn(*session, step);
      weights[with] = ClonesOf(session->ReadWeights());
    }
    ExpectSame(weights[0], weights[1]);
  }
}

TEST(EmaSession, ASkippedStepMovesNothing) {
  TempDir dir;
  auto session = TrainingSession::Create(EmaOptions(WriteMlp(dir, false)));
  for (uint64_t step : {1, 2}) StepOn(*session, step);
  const TensorMap before = AveragesIn(session->State().tensors);
  TensorMap bad = Batch(3);
  bad.at("x").data<float>()[0] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(session->Step(bad, 1e-2).skipped);
  const TensorMap state = session->State().tensors;
  ExpectSame(AveragesIn(state), before);
  EXPECT_EQ(IntAt(state.at(kAveraged), 0), 2);
}

TEST(EmaSession, FrozenWeightsHaveNone) {
  TempDir dir;
  SessionOptions options = EmaOptions(WriteMlp(dir, false));
  options.freeze = {"fc.weight"};
  auto session = TrainingSession::Create(options);
  const std::string remark = session->Step(Batch(1), 1e-2).remark;
  const auto bytes = 4 * kHidden * kClasses;
  EXPECT_NE(remark.find(Concat("`ema=0.75`: averages of weights: 1 (", bytes,
                               " bytes), moved by each update")),
            std::string::npos)
      << remark;
  const TensorMap state = session->State().tensors;
  EXPECT_FALSE(state.contains("fc.weight.ema"));
  EXPECT_TRUE(state.contains("out.weight.ema"));
}

// The loss is the one of a session whose weights are the averages.
TEST(EmaSession, EvaluationReadsThemIfAsked) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* master : {"float32", "split8"}) {
    SessionOptions options = EmaOptions(model);
    options.optimizer.master = master;
    options.eval_with = "ema";
    auto session = TrainingSession::Create(options);
    EXPECT_FALSE(session->Eval(Batch(9)).of_averages);
    for (uint64_t step : {1, 2, 3}) StepOn(*session, step);
    const TensorMap averages = AveragesIn(session->State().tensors);
    auto plain = TrainingSession::Create(Options(model));
    plain->SetWeights(averages);
    const EvalResult want = plain->Eval(Batch(9));
    const EvalResult got = session->Eval(Batch(9));
    EXPECT_TRUE(got.of_averages);
    EXPECT_FALSE(want.of_averages);
    EXPECT_EQ(got.loss, want.loss);
    plain->SetWeights(session->ReadWeights());
    EXPECT_NE(plain->Eval(Batch(9)).loss, want.loss);
    ExpectSame(Weights(*session, dir), averages);
  }
}

TEST(EmaSession, BeforeTheFirstThereIsNothingToExport) {
  TempDir dir;
  SessionOptions options = EmaOptions(WriteMlp(dir, false));
  options.eval_with = "ema";
  options.optimizer.ema_every = 2;
  auto session = TrainingSession::Create(options);
  StepOn(*session, 1);
  EXPECT_FALSE(session->Eval(Batch(9)).of_averages);
  ExpectError([&] { session->ExportOnnx(dir / "none.onnx"); },
              "expected averages of weights, got none");
  StepOn(*session, 2);
  ExpectSame(Weights(*session, dir), session->ReadWeights());
}

TEST(EmaSession, ARestoredRunGoesOnWithTheSameBits) {
  TempDir dir;
  const SessionOptions options = EmaOptions(WriteMlp(dir, false));
  auto straight = TrainingSession::Create(options);
  for (uint64_t step : {1, 2, 3}) StepOn(*straight, step);
  auto begun = TrainingSession::Create(options);
  for (uint64_t step : {1, 2}) StepOn(*begun, step);
  begun->Save(dir / "run");
  auto resumed = TrainingSession::Create(options);
  resumed->Restore(dir / "run");
  StepOn(*resumed, 3);
  ExpectSame(resumed->State().tensors, straight->State().tensors);
}

TEST(EmaSession, ARunMayBeginOrEndIt) {
  TempDir dir;
  SessionOptions with = EmaOptions(WriteMlp(dir, false)), without = with;
  without.optimizer.ema = 0;
  auto begun = TrainingSession::Create(without);
  StepOn(*begun, 1);
  begun->Save(dir / "run");
  auto averages = TrainingSession::Create(with);
  averages->Restore(dir / "run");
  EmaLoop loop;
  for (uint64_t step : {2, 3}) {
    StepOn(*averages, step);
    loop.Take(averages->ReadWeights());
  }
  ExpectSame(AveragesIn(averages->State().tensors), loop.averages());
  averages->Save(dir / "run");
  auto ended = TrainingSession::Create(without);
  ended->Restore(dir / "run");
  const std::string remark = ended->Step(Batch(4), 1e-2).remark;
  EXPECT_NE(remark.find("without `ema`: 2 averages of weights are dropped"),
            std::string::npos)
      << remark;
  const TensorMap state = ended->State().tensors;
  EXPECT_FALSE(state.contains("fc.weight.ema"));
  EXPECT_FALSE(state.contains(kAveraged));
}

TEST(EmaSession, AveragesOfWeightsThatAreSetBeginAnew) {
  TempDir dir;
  SessionOptions options = EmaOptions(WriteMlp(dir, false));
  options.eval_with = "ema";
  auto session = TrainingSession::Create(options);
  const TensorMap first = ClonesOf(session->ReadWeights());
  for (uint64_t step : {1, 2}) StepOn(*session, step);
  // All: as in a run that starts.
  session->SetWeights(first);
  EXPECT_FALSE(session->Eval(Batch(9)).of_averages);
  EmaLoop anew;
  for (uint64_t step : {3, 4}) {
    StepOn(*session, step);
    anew.Take(session->ReadWeights());
    ExpectSame(AveragesIn(session->State().tensors), anew.averages());
  }
  EXPECT_TRUE(session->Eval(Batch(9)).of_averages);
  // One: it begins as the weight, and the other goes on.
  const TensorMap before = AveragesIn(session->State().tensors);
  const std::string set = "fc.weight";
  session->SetWeights({{set, first.at(set)}});
  StepOn(*session, 5);
  const TensorMap weights = session->ReadWeights();
  EmaLoop one;
  one.Take({{set, first.at(set)}, {"out.weight", before.at("out.weight")}});
  one.Take(weights);
  ExpectSame(AveragesIn(session->State().tensors), one.averages());
}

// One step of a run that so many ranks go on with. Returns its checkpoint.
TensorMap StepOfRanks(int64_t ranks, uint64_t step, const std::string& folder,
                      SessionOptions options) {
  const auto run = [&](const MeshRanks* mesh) {
    auto session = MakeSession(options, MakeCpuProvider(), mesh);
    if (step > 1) session->Restore(folder);
    const TensorMap batch = Batch(step, 12);
    session->Step(mesh ? ShareOf(batch, mesh->data_rank(), ranks) : batch,
                  1e-2);
    session->Save(folder);
  };
  if (ranks == 1) {
    run(nullptr);
  } else {
    options.shard.what = Sharding::kParameters;
    RunRanks(static_cast<int>(ranks), [&](Communicator& world) {
      const MeshRanks mesh(Mesh{.dp = ranks}, world);
      run(&mesh);
    });
  }
  return StateIn(folder);
}

TEST(EmaSession, OtherNumbersOfRanksGoOn) {
  TempDir dir;
  const SessionOptions options = EmaOptions(WriteMlp(dir, false));
  EmaLoop loop;
  uint64_t step = 0;
  for (int64_t ranks : {4, 2, 1, 3}) {
    const TensorMap state = StepOfRanks(ranks, ++step, dir / "run", options);
    loop.Take(state);
    ExpectSame(AveragesIn(state), loop.averages());
  }
}

// All ranks read the averages of the whole layers.
TEST(EmaSession, RanksEvaluateAsOneDoes) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.tp = 2}}) {
    SessionOptions options = EmaOptions(model);
    options.eval_with = "ema";
    if (mesh.dp > 1) options.shard.what = Sharding::kParameters;
    const std::string folder = dir / Concat("run", mesh.dp);
    float losses[2];
    RunRanks(2, [&](Communicator& world) {
      const MeshRanks ranks(mesh, world);
      auto session = MakeSession(options, MakeCpuProvider(), &ranks);
      for (uint64_t step : {1, 2}) {
        session->Step(ShareOf(Batch(step, 8), ranks.data_rank(), mesh.dp),
                      1e-2);
      }
      const EvalResult result = session->Eval(Batch(9));
      EXPECT_TRUE(result.of_averages);
      losses[world.rank()] = result.loss;
      session->Save(folder);
    });
    auto plain = TrainingSession::Create(Options(model));
    plain->SetWeights(AveragesIn(StateIn(folder)));
    const float want = plain->Eval(Batch(9)).loss;
    for (float loss : losses) EXPECT_NEAR(loss, want, 1e-6f * want);
  }
}

TEST(EmaSession, AskingForNoneIsRefused) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.eval_with = "ema";
  ExpectError([&] { TrainingSession::Create(options); },
              "`eval_with=ema`: expected a run with `ema`");
  options.eval_with = "swa";
  ExpectError([&] { TrainingSession::Create(options); },
              "`eval_with`: expected weights or ema, got swa");
}

}  // namespace
}  // namespace onnx_fp8
