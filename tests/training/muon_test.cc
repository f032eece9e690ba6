// SPDX-License-Identifier: Apache-2.0
//
// Sessions whose hidden matrices Muon updates.
#include <algorithm>
#include <string>
#include <vector>

#include "onnx_fp8/option_error.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/paths.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

SessionOptions MuonOptions(const std::string& model) {
  SessionOptions options = Options(model);
  options.optimizer.kind = "muon";
  return options;
}

TensorMap MuonState(TrainingSession& session) {
  TensorMap copy;
  for (const auto& [name, tensor] : session.State().tensors) {
    copy[name] = tensor.Clone();
  }
  return copy;
}

TensorMap AfterMuonSteps(const SessionOptions& options) {
  auto session = TrainingSession::Create(options);
  for (uint64_t step : {1, 2, 3}) {
    session->Step(Batches(static_cast<size_t>(options.grad_accum), Batch(step)),
                  1e-2);
  }
  return MuonState(*session);
}

bool NotesSay(const std::vector<std::string>& notes, const std::string& text) {
  return std::ranges::any_of(notes, [&](const std::string& note) {
    return note.find(text) != std::string::npos;
  });
}

TEST(MuonSessions, TakeHiddenMatrices) {
  TempDir dir;
  SessionOptions options = MuonOptions(WriteMlp(dir, false));
  auto session = TrainingSession::Create(options);
  session->Step(Batch(1), 1e-2);
  const TensorMap state = MuonState(*session);
  EXPECT_TRUE(state.contains("fc.weight.momentum_buffer"));
  EXPECT_FALSE(state.contains("fc.weight.exp_avg"));
  EXPECT_TRUE(state.contains("out.weight.exp_avg"));
  EXPECT_TRUE(NotesSay(session->Notes(),
                       "`optimizer=muon`: 1 of 2 trained tensors take it: "
                       "fc.weight; the others take adamw: out.weight (the last "
                       "layer)"));
  options.optimizer.muon.only = {"out.*"};
  auto named = TrainingSession::Create(options);
  named->Step(Batch(1), 1e-2);
  EXPECT_TRUE(MuonState(*named).contains("out.weight.momentum_buffer"));
  EXPECT_TRUE(MuonState(*named).contains("fc.weight.exp_avg"));
  options.optimizer.muon.only = {"no.*"};
  EXPECT_THROW(TrainingSession::Create(options), OptionError);
}

// Tables of tokens and positions, and the last layer, which is tied.
TEST(MuonSessions, KnowTablesAndLastLayers) {
  auto session = TrainingSession::Create(
      MuonOptions(SourcePath("tests/fixtures/nanogpt/d18.onnx")));
  session->Step(TokenSteps()[0], 1e-3);
  int64_t matrices = 0, others = 0;
  for (const auto& [name, tensor] : MuonState(*session)) {
    matrices += name.ends_with(".momentum_buffer");
    const bool second = name.ends_with(".exp_avg_sq");
    others += second;
    if (second && tensor.rank() == 2) {
      EXPECT_TRUE(name.find("wte") != std::string::npos ||
                  name.find("wpe") != std::string::npos ||
                  name.find("head") != std::string::npos)
          << name;
    }
  }
  EXPECT_GT(matrices, 0);
  EXPECT_EQ(matrices % 4, 0);  // of a block: qkv, projection and two of the MLP
  EXPECT_GT(others, 0);
}

TEST(MuonSessions, RestoredRunsGoOnWithTheSameBits) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* moments : {"float32", "bfloat16"}) {
    SessionOptions options = MuonOptions(model);
    options.optimizer.moments = moments;
    const TensorMap straight = AfterMuonSteps(options);
    auto begun = TrainingSession::Create(options);
    for (uint64_t step : {1, 2}) begun->Step(Batch(step), 1e-2);
    begun->Save(dir / moments);
    auto resumed = TrainingSession::Create(options);
    resumed->Restore(dir / moments);
    resumed->Step(Batch(3), 1e-2);
    ExpectSame(MuonState(*resumed), straight);
  }
}

// Muon's matrices leave AdamW's moments behind, and the reverse.
TEST(MuonSessions, AChangeOfOptimizerDropsTheOtherMoments) {
  TempDir dir;
  SessionOptions options = MuonOptions(WriteMlp(dir, false));
  std::string before = "adamw";
  for (const auto& [kind, moments] :
       {std::pair("muon",
                  "`optimizer=muon`: 2 moments of the optimizer before "
                  "are dropped"),
        std::pair("adamw",
                  "`optimizer=adamw`: 1 moments of the optimizer "
                  "before are dropped")}) {
    options.optimizer.kind = before;
    auto begun = TrainingSession::Create(options);
    begun->Step(Batch(1), 1e-2);
    begun->Save(dir / before);
    options.optimizer.kind = kind;
    auto other = TrainingSession::Create(options);
    other->Restore(dir / before);
    const std::string remark = other->Step(Batch(2), 1e-2).remark;
    EXPECT_NE(remark.find(moments), std::string::npos) << remark;
    const TensorMap state = MuonState(*other);
    EXPECT_EQ(state.contains("fc.weight.exp_avg"), before == "muon");
    EXPECT_EQ(state.contains("fc.weight.momentum_buffer"), before == "adamw");
    EXPECT_TRUE(state.contains("out.weight.exp_avg"));
    before = kind;
  }
}

TEST(MuonSessions, ReleasedGradientsKeepAllBits) {
  TempDir dir;
  SessionOptions options = MuonOptions(WriteMlp(dir, false));
  const TensorMap held = AfterMuonSteps(options);
  options.optimizer.release_gradients = true;
  ExpectSame(AfterMuonSteps(options), held);
}

// The ranks join their rows of the momentum.
TEST(MuonSessions, DividedStateKeepsAllBits) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (int64_t micro_batches : {1, 2}) {
    SessionOptions options = MuonOptions(model);
    options.grad_accum = micro_batches;
    const std::vector<Batches> steps(
        2, Batches(static_cast<size_t>(micro_batches), Batch(1)));
    const auto whole = TrainRanks(3, options, steps);
    for (Sharding what : {Sharding::kOptimizer, Sharding::kParameters}) {
      // ZeRO-3 adds gradients in another order.
      if (micro_batches > 1 && what == Sharding::kParameters) continue;
      options.shard.what = what;
      const auto parts = TrainRanks(3, options, steps);
      ExpectSame(parts[0].weights, whole[0].weights);
    }
  }
}

TEST(MuonSessions, RanksThatDivideLayersAreRefused) {
  TempDir dir;
  const SessionOptions options = MuonOptions(WriteMlp(dir, false));
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks({.tp = 2}, world);
    try {
      MakeSession(options, MakeCpuProvider(), &ranks);
      ADD_FAILURE() << "expected an error";
    } catch (const OptionError& error) {
      EXPECT_NE(std::string(error.what()).find("(tp=1)"), std::string::npos);
    }
  });
}

}  // namespace
}  // namespace onnx_fp8
