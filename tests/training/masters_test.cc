// SPDX-License-Identifier: Apache-2.0
//
// Sessions that keep weights as bfloat16s, with or without a correction.
#include "training/state/masters.h"

#include <bit>
#include <limits>
#include <map>
#include <string>

#include "base/master_codes.h"
#include "providers/cpu/cpu_provider.h"
#include "providers/plan/plan.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/make_provider.h"
#include "training/ranks/sharded_state.h"
#include "training/step/pipelines.h"
#include "training/step/step_graph.h"
#include "training/step/training_model.h"

namespace onnx_fp8 {
namespace {

constexpr const char* kMasterFormats[] = {"split8", "bfloat16", "split"};

SessionOptions MasterOptions(const std::string& model,
                             const std::string& master) {
  SessionOptions options = Options(model);
  options.optimizer.master = master;
  options.seed = 5;
  return options;
}

TensorMap Copied(const TensorMap& tensors) {
  TensorMap copy;
  for (const auto& [name, tensor] : tensors) copy[name] = tensor.Clone();
  return copy;
}

// After steps 1, 2, …, each on a batch of its own.
std::unique_ptr<TrainingSession> TrainedSession(const SessionOptions& options,
                                                uint64_t steps = 3) {
  auto session = TrainingSession::Create(options);
  for (uint64_t step = 1; step <= steps; ++step) {
    session->Step(Batches(static_cast<size_t>(options.grad_accum), Batch(step)),
                  1e-2);
  }
  return session;
}

TensorMap StateOfMasters(const SessionOptions& options, uint64_t steps = 3) {
  return Copied(TrainedSession(options, steps)->State().tensors);
}

TensorMap WeightsOfMasters(const SessionOptions& options, uint64_t steps = 3) {
  return Copied(TrainedSession(options, steps)->ReadWeights());
}

TEST(Masters, TheStateHasTheirBytes) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  constexpr size_t kNumbers = kIn * kHidden + kHidden * kClasses;
  const size_t floats =
      TrainedSession(MasterOptions(model, "float32"), 1)->Memory().state_bytes;
  const std::map<std::string, std::pair<size_t, DType>> kinds = {
      {"split8", {3, DType::kInt8}},
      {"bfloat16", {2, DType::kUndefined}},
      {"split", {4, DType::kInt16}}};
  for (const auto& [master, kind] : kinds) {
    const auto& [bytes, correction] = kind;
    auto session = TrainedSession(MasterOptions(model, master), 1);
    const TensorMap state = session->State().tensors;
    for (const char* name : {"fc.weight", "out.weight"}) {
      EXPECT_EQ(state.at(name).dtype(), DType::kBFloat16) << master;
      auto own = state.find(name + std::string(".correction"));
      ASSERT_EQ(own != state.end(), correction != DType::kUndefined) << master;
      if (own == state.end()) continue;
      EXPECT_EQ(own->second.dtype(), correction);
    }
    const size_t seed = correction == DType::kUndefined ? sizeof(int64_t) : 0;
    EXPECT_EQ(session->Memory().state_bytes,
              floats - (4 - bytes) * kNumbers + seed)
        << master;
  }
}

// The first weights, before any step.
TEST(Masters, WeightsAreReadAsFloats) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const TensorMap first = WeightsOfMasters(MasterOptions(model, "float32"), 0);
  for (const char* master : kMasterFormats) {
    const TensorMap got = WeightsOfMasters(MasterOptions(model, master), 0);
    ASSERT_EQ(got.size(), first.size());
    for (const auto& [name, weight] : first) {
      ASSERT_EQ(got.at(name).dtype(), DType::kFloat) << name;
      for (int64_t i = 0; i < weight.size(); ++i) {
        const auto bits = std::bit_cast<uint32_t>(weight.data<float>()[i]);
        const auto narrow = EncodeMaster<8>(bits);
        const uint32_t want =
            master == std::string("split") ? bits
            : master == std::string("split8")
                ? DecodeMaster<8>(narrow.half, narrow.correction)
                : (bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000;
        ASSERT_EQ(std::bit_cast<uint32_t>(got.at(name).data<float>()[i]), want)
            << master << " " << name << " " << i;
      }
    }
  }
}

TEST(Masters, SplitOnesTrainAsFloats) {
  TempDir dir;
  const std::string model = WriteMlp(dir, true);
  const std::pair<const char*, int64_t> cases[] = {{"off", 1},
                                                   {"tensorwise", 2}};
  for (auto [recipe, micro_batches] : cases) {
    SessionOptions options = Options(model, recipe);
    options.grad_accum = micro_batches;
    auto floats = TrainingSession::Create(options);
    options.optimizer.master = "split";
    auto split = TrainingSession::Create(options);
    for (uint64_t step : {1, 2, 3}) {
      const Batches batches(static_cast<size_t>(micro_batches), Batch(step));
      EXPECT_EQ(split->Step(batches, 1e-2).loss,
                floats->Step(batches, 1e-2).loss)
          << recipe << step;
    }
    EXPECT_EQ(split->Eval(Batch(9)).loss, floats->Eval(Batch(9)).loss);
    ExpectSame(split->ReadWeights(), floats->ReadWeights());
  }
}

// The products of a float run read the nearest bfloat16s, to even in the
// middle; a split run's read the halves. No weight lies in the middle here.
TEST(Masters, SplitOnesTrainAsFloatsUnderAutocast) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.dtype = DType::kBFloat16;
  auto floats = TrainedSession(options);
  options.optimizer.master = "split";
  auto split = TrainedSession(options);
  EXPECT_EQ(split->Eval(Batch(9)).loss, floats->Eval(Batch(9)).loss);
  ExpectSame(split->ReadWeights(), floats->ReadWeights());
}

// The nodes of a planned step that decode weights, and the updates that read
// the halves themselves.
struct ReadersOfHalves {
  int64_t decodes = 0, updates = 0;
};

ReadersOfHalves ReadersIn(const SessionOptions& options) {
  PassRunner runner = MakePassRunner(options);
  const TrainingModel model = LoadTrainingModel(options, runner);
  auto evaluator = MakeEvaluator();
  auto provider = MakeCpuProvider();
  const StepGraph step =
      BuildStepGraph(MakeStepSource(options, model, *evaluator, runner),
                     StepKind::kTrain, {{"x", {6, kIn}}});
  EXPECT_EQ(step.masters.substr(0, step.masters.find(':')),
            Concat("`master` ", options.optimizer.master));
  FitToKernels(*step.graph, provider->Kernels(), options, *evaluator, runner);
  const Plan plan =
      MakePlan(*step.graph, provider->Kernels(), provider->device());
  ReadersOfHalves readers;
  for (const Step& each : plan.steps) {
    const Value* read = each.node->in(0);
    if (!read || read->role != Role::kParameter) continue;
    readers.updates += each.node->IsOurs("AdamW");
    if (!each.node->Is("Cast") && !each.node->IsOurs("DecodeMaster")) continue;
    ++readers.decodes;
    EXPECT_EQ(each.node->out(0)->uses.size(), 1u);
    EXPECT_TRUE(each.node->out(0)->uses[0]->IsOurs("AdamW"));
  }
  return readers;
}

// If the pass is left out, the updates decode floats, but nobody else.
TEST(Masters, UnderAutocastAllReadTheHalvesInTheirPlace) {
  TempDir dir;
  for (const char* master : kMasterFormats) {
    SCOPED_TRACE(master);
    SessionOptions options = MasterOptions(WriteMlp(dir, false), master);
    options.dtype = DType::kBFloat16;
    const ReadersOfHalves joined = ReadersIn(options);
    EXPECT_EQ(joined.decodes, 0);
    EXPECT_EQ(joined.updates, 2);
    options.skip_passes = {"JoinMasters"};
    const ReadersOfHalves apart = ReadersIn(options);
    EXPECT_EQ(apart.decodes, 2);
    EXPECT_EQ(apart.updates, 0);
  }
}

TEST(Masters, ARestoredRunGoesOnWithTheSameBits) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* master : kMasterFormats) {
    SessionOptions options = MasterOptions(model, master);
    const TensorMap straight = StateOfMasters(options);
    TrainedSession(options, 2)->Save(dir / master);
    options.seed = 99;  // the checkpoint has the seed of the draws
    auto resumed = TrainingSession::Create(options);
    resumed->Restore(dir / master);
    resumed->Step(Batch(3), 1e-2);
    ExpectSame(Copied(resumed->State().tensors), straight);
  }
}

TEST(Masters, ACheckpointOfOthersIsRefused) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const std::string formats[] = {"float32", "split8", "bfloat16", "split"};
  const std::string types[] = {"none", "int8[8,16]", "none", "int16[8,16]"};
  for (const std::string& format : formats) {
    TrainedSession(MasterOptions(model, format), 1)->Save(dir / format);
  }
  for (size_t i = 0; i < std::size(formats); ++i) {
    for (size_t k = 0; k < std::size(formats); ++k) {
      auto session = TrainingSession::Create(MasterOptions(model, formats[k]));
      const auto restore = [&] { session->Restore(dir / formats[i]); };
      if (i == k) {
        restore();
        continue;
      }
      const bool same_half = i > 0 && k > 0;
      const std::string half = i > 0 ? "bfloat16[8,16]" : "float[8,16]";
      const std::string wanted = k > 0 ? "bfloat16[8,16]" : "float[8,16]";
      ExpectError(restore,
                  same_half
                      ? Concat("fc.weight.correction as ", types[k], ", got ",
                               types[i], ": a run keeps the `master`")
                      : Concat("fc.weight as ", wanted, ", got ", half,
                               ": a run keeps the `master`"));
    }
  }
}

TEST(Masters, NeitherPassesNorBodiesNorEarlyUpdatesChangeABit) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const std::pair<const char*, const char*> cases[] = {
      {"split8", "adamw_hf"}, {"bfloat16", "sgd"}, {"split", "adamw"}};
  for (auto [master, kind] : cases) {
    SessionOptions options = MasterOptions(model, master);
    options.optimizer.kind = kind;
    options.optimizer.weight_decay = 0.1;
    options.optimizer.moments = "bfloat16";
    const TensorMap held = StateOfMasters(options, 2);
    options.skip_passes = {"JoinMasters"};
    ExpectSame(StateOfMasters(options, 2), held);
    options.skip_passes = {};
    options.expand = {"EncodeMaster", "DecodeMaster", "RoundStochastic"};
    ExpectSame(StateOfMasters(options, 2), held);
    options.expand = {};
    options.optimizer.release_gradients = true;
    ExpectSame(StateOfMasters(options, 2), held);
  }
}

TEST(Masters, ASkippedStepKeepsAllBits) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* master : kMasterFormats) {
    auto session = TrainedSession(MasterOptions(model, master), 1);
    TensorMap before = Copied(session->State().tensors);
    TensorMap bad = Batch(2);
    bad.at("x").data<float>()[0] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(session->Step(bad, 1e-2).skipped);
    TensorMap after = Copied(session->State().tensors);
    before.erase("optimizer.skipped");
    after.erase("optimizer.skipped");
    ExpectSame(after, before);
  }
}

// How far the weights of a run have moved along the way of another one, whose
// length is 1.
double MovedAlong(const TensorMap& from, const TensorMap& to,
                  const TensorMap& way) {
  double along = 0, length = 0;
  for (const auto& [name, step] : way) {
    for (int64_t i = 0; i < step.size(); ++i) {
      const double own = DoubleAt(to.at(name), i) - DoubleAt(from.at(name), i);
      along += own * DoubleAt(step, i);
      length += DoubleAt(step, i) * DoubleAt(step, i);
    }
  }
  return along / length;
}

// Updates of far less than half a unit of a bfloat16 add up, on average.
TEST(Masters, SmallUpdatesAreNotLost) {
  TempDir dir;
  SessionOptions options = MasterOptions(WriteMlp(dir, false), "float32");
  options.optimizer.kind = "sgd";
  TensorMap way;
  for (const auto& [master, tolerance] : {std::pair{"float32", 0.0},
                                          {"split", 0.0},
                                          {"split8", 0.05},
                                          {"bfloat16", 0.4}}) {
    options.optimizer.master = master;
    auto session = TrainingSession::Create(options);
    const TensorMap first = Copied(session->ReadWeights());
    for (int i = 0; i < 40; ++i) session->Step(Batch(1), 3e-4);
    const TensorMap last = session->ReadWeights();
    if (way.empty()) {
      for (const auto& [name, weight] : last) {
        way[name] = weight.Clone();
        for (int64_t i = 0; i < weight.size(); ++i) {
          way[name].data<float>()[i] -= first.at(name).data<float>()[i];
        }
      }
    }
    EXPECT_NEAR(MovedAlong(first, last, way), 1, tolerance + 1e-6) << master;
  }
}

TEST(Masters, TheSeedDecidesHowBFloat16sAreRounded) {
  TempDir dir;
  SessionOptions options = MasterOptions(WriteMlp(dir, false), "bfloat16");
  const TensorMap first = StateOfMasters(options);
  ExpectSame(StateOfMasters(options), first);
  options.seed = 6;
  EXPECT_FALSE(Identical(StateOfMasters(options).at("fc.weight"),
                         first.at("fc.weight")));
}

TEST(Masters, WeightsThatAreSetAreKept) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* master : kMasterFormats) {
    auto session = TrainedSession(MasterOptions(model, master), 1);
    const TensorMap want = Copied(session->ReadWeights());
    session->Step(Batch(2), 1e-2);
    EXPECT_FALSE(Same(session->ReadWeights(), want));
    session->SetWeights(want);
    ExpectSame(session->ReadWeights(), want);
  }
}

TEST(Masters, AnExportHasTheFloats) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* master : kMasterFormats) {
    auto session = TrainedSession(MasterOptions(model, master), 2);
    const TensorMap want = Copied(session->ReadWeights());
    session->ExportOnnx(dir / "out.onnx");
    auto of_file = TrainingSession::Create(Options(dir / "out.onnx"));
    ExpectSame(of_file->ReadWeights(), want);
    session->ExportSafetensors(dir / "out.safetensors");
    SessionOptions options = Options(model);
    options.init = dir / "out.safetensors";
    ExpectSame(TrainingSession::Create(options)->ReadWeights(), want);
  }
}

// Another run may begin with the weights in a checkpoint's file.
TEST(Masters, CorrectionsAmongTensorsAreJoined) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* master : {"split8", "split"}) {
    auto session = TrainedSession(MasterOptions(model, master), 2);
    TensorMap tensors = Copied(session->State().tensors);
    tensors["other.correction"] = Tensor::Scalar(int64_t{1});
    JoinCorrections(&tensors);
    for (const auto& [name, weight] : session->ReadWeights()) {
      EXPECT_TRUE(Identical(tensors.at(name), weight)) << master << name;
      EXPECT_FALSE(tensors.contains(name + ".correction")) << master << name;
    }
    EXPECT_TRUE(tensors.contains("other.correction"));
    EXPECT_TRUE(tensors.contains("fc.weight.exp_avg"));
  }
}

// Ranks have equal samples, and so equal gradients, whose mean is exact.
TEST(Masters, RanksThatDivideStateKeepWhatOneDoes) {
  TempDir dir;
  SessionOptions options = MasterOptions(WriteMlp(dir, false), "split");
  const auto shares = [](int64_t ranks) {
    std::vector<Batches> steps;
    for (uint64_t step : {1, 2}) {
      const TensorMap own = Batch(step, 4);
      Tensor x = Tensor::Allocate(DType::kFloat, {4 * ranks, kIn});
      Tensor labels = Tensor::Allocate(DType::kInt64, {4 * ranks});
      for (int64_t i = 0; i < x.size(); ++i) {
        const auto& from = own.at("x");
        x.data<float>()[i] = from.data<float>()[i % from.size()];
      }
      for (int64_t i = 0; i < labels.size(); ++i) {
        labels.data<int64_t>()[i] = own.at("labels").data<int64_t>()[i % 4];
      }
      steps.push_back({{{"x", x}, {"labels", labels}}});
    }
    return steps;
  };
  const std::pair<const char*, Sharding> cases[] = {
      {"split8", Sharding::kParameters},
      {"bfloat16", Sharding::kParameters},
      {"bfloat16", Sharding::kOptimizer},
      {"split", Sharding::kOptimizer}};
  for (auto [master, what] : cases) {
    options.optimizer.master = master;
    options.shard.what = Sharding::kNone;
    const TensorMap want = TrainSteps(options, shares(1)).weights;
    options.shard.what = what;
    ExpectSame(TrainRanks(2, options, shares(2))[0].weights, want);
  }
}

// Sums over ranks have the same order with whole state and with parts. The last
// one of three ranks has fewer rows of both weights than the others; the last
// one of five has none.
TEST(Masters, RanksWithUnequalPartsKeepTheBitsOfWholeState) {
  for (const Shape& weight : {Shape{kIn, kHidden}, Shape{kHidden, kClasses}}) {
    const Shard short_part = ShardOf(weight, 2, 3);
    EXPECT_LT(short_part.rows, short_part.part[0]);
    EXPECT_GT(short_part.rows, 0);
    EXPECT_EQ(ShardOf(weight, 4, 5).rows, 0);
  }
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const std::vector<Batches> steps = {{Batch(1, 7)}, {Batch(2, 7)}};
  const std::pair<int, const char*> cases[] = {{3, "split8"},
                                               {3, "bfloat16"},
                                               {3, "split"},
                                               {5, "split8"},
                                               {5, "bfloat16"}};
  for (auto [ranks, master] : cases) {
    SCOPED_TRACE(Concat(master, " on ", ranks, " ranks"));
    SessionOptions options = MasterOptions(model, master);
    options.optimizer.moments = "bfloat16";
    const RankRun whole = TrainRanks(ranks, options, steps)[0];
    for (Sharding what : {Sharding::kOptimizer, Sharding::kParameters}) {
      options.shard.what = what;
      const RankRun parts = TrainRanks(ranks, options, steps)[0];
      ExpectSame(parts.weights, whole.weights);
      EXPECT_EQ(parts.steps[1].loss, whole.steps[1].loss);
    }
  }
}

TEST(Masters, RanksThatDivideLayersDrawAsOthersDo) {
  TempDir dir;
  for (const char* master : {"split8", "bfloat16"}) {
    SessionOptions options = MasterOptions(WriteMlp(dir, false), master);
    options.dtype = DType::kFloat;
    const std::vector<Batches> steps = {{Batch(1, 4)}, {Batch(2, 4)}};
    const RankRun one = TrainSteps(options, steps);
    const RankRun two = TrainRanks(Mesh{.tp = 2}, options, steps)[0];
    for (const auto& [name, weight] : one.weights) {
      const Tensor& got = two.weights.at(name);
      ASSERT_EQ(got.shape(), weight.shape());
      int64_t others = 0;
      for (int64_t i = 0; i < weight.size(); ++i) {
        others += weight.data<float>()[i] != got.data<float>()[i];
      }
      // Sums of products have another order.
      EXPECT_LE(others, weight.size() / 20) << master << " " << name;
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
