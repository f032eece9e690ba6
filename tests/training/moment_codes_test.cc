// SPDX-License-Identifier: Apache-2.0
//
// Sessions that keep moments as FP8 codes.
#include <cmath>
#include <cstring>
#include <string>
#include <tuple>

#include "graph/builder.h"
#include "graph/moment_shapes.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/ranks/sharded_state.h"
#include "training/session/make_session.h"
#include "training/state/checkpoint.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kCodedIn = 8, kCodedHidden = 512, kCodedClasses = 36;

// Layers of 8 x `hidden` and `hidden` x 36, and a bias. Of 2 ranks each has
// half of the first one's columns and of the second one's rows.
std::string WriteWide(const TempDir& dir, int64_t hidden = kCodedHidden) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kCodedIn});
  x->axis_names = {"batch", ""};
  auto weight = [&](const char* name, const Shape& shape, uint64_t seed) {
    return graph.AddInitializer(name, Random(shape, seed));
  };
  Value* h = b.Op("MatMul", {x, weight("fc.weight", {kCodedIn, hidden}, 1)});
  h = b.Op("Relu", {b.Add(h, weight("fc.bias", {hidden}, 2))});
  graph.outputs = {
      b.Op("MatMul", {h, weight("out.weight", {hidden, kCodedClasses}, 3)})};
  const std::string path = dir / Concat("wide", hidden, ".onnx");
  WriteModel(graph, path);
  return path;
}

SessionOptions CodedMoments(const std::string& model) {
  SessionOptions options = Options(model);
  options.optimizer.moments = "fp8";
  options.optimizer.lr = 1e-2;
  options.seed = 5;
  return options;
}

TensorMap StateCopy(TrainingSession& session) {
  TensorMap copy;
  for (const auto& [name, tensor] : session.State().tensors) {
    copy[name] = tensor.Clone();
  }
  return copy;
}

TensorMap StateOfRun(const SessionOptions& options, uint64_t steps = 2) {
  auto session = TrainingSession::Create(options);
  for (uint64_t step = 1; step <= steps; ++step) {
    session->Step(Batches(static_cast<size_t>(options.grad_accum), Batch(step)),
                  1e-2);
  }
  return StateCopy(*session);
}

TEST(CodedMoments, TheStateHasCodesAndScales) {
  TempDir dir;
  SessionOptions options = CodedMoments(WriteWide(dir));
  for (int64_t micro : {1, 2}) {
    options.grad_accum = micro;
    auto session = TrainingSession::Create(options);
    const Batches batches(static_cast<size_t>(micro), Batch(1));
    const StepResult first = session->Step(batches, 1e-2);
    EXPECT_NE(first.remark.find(
                  "`moments` fp8: 4 are codes, 2 are floats (4096 bytes)"),
              std::string::npos)
        << first.remark;
    EXPECT_EQ(session->Step(batches, 1e-2).remark, "");
    const TensorMap state = StateCopy(*session);
    for (const char* weight : {"fc.weight", "out.weight"}) {
      for (const char* moment : {".exp_avg", ".exp_avg_sq"}) {
        const std::string name = weight + std::string(moment);
        EXPECT_EQ(state.at(name).dtype(), DType::kE4M3);
        EXPECT_EQ(state.at(name + ".scale").shape(),
                  MomentScaleShape(state.at(weight).shape()));
      }
    }
    EXPECT_EQ(state.at("fc.bias.exp_avg").dtype(), DType::kFloat);
    EXPECT_FALSE(state.contains("fc.bias.exp_avg.scale"));
    EXPECT_EQ(session->ReportMemory().Total(MemoryKind::kFp8Copy), 0u);
  }
}

TEST(CodedMoments, ARestoredRunGoesOnWithTheSameBits) {
  TempDir dir;
  SessionOptions options = CodedMoments(WriteWide(dir));
  const TensorMap straight = StateOfRun(options, 3);
  auto begun = TrainingSession::Create(options);
  for (uint64_t step : {1, 2}) begun->Step(Batch(step), 1e-2);
  begun->Save(dir / "run");
  options.seed = 99;  // the checkpoint has the seed of the draws
  auto resumed = TrainingSession::Create(options);
  resumed->Restore(dir / "run");
  resumed->Step(Batch(3), 1e-2);
  ExpectSame(StateCopy(*resumed), straight);
}

TEST(CodedMoments, NeitherTheirPassNorBodiesChangeABit) {
  TempDir dir;
  SessionOptions options = CodedMoments(WriteWide(dir));
  for (const char* kind : {"adamw", "sgd"}) {
    options.optimizer.kind = kind;
    options.optimizer.momentum = kind == std::string("sgd") ? 0.9 : 0;
    options.skip_passes = {};
    options.expand = {};
    const TensorMap joined = StateOfRun(options);
    options.skip_passes = {"JoinMoments"};
    ExpectSame(StateOfRun(options), joined);
    options.expand = {"DecodeMoment", "EncodeMoment", "EncodeSecondMoment"};
    ExpectSame(StateOfRun(options), joined);
  }
}

TEST(CodedMoments, ReleasedGradientsKeepAllBits) {
  TempDir dir;
  SessionOptions options = CodedMoments(WriteWide(dir));
  const TensorMap held = StateOfRun(options);
  options.optimizer.release_gradients = true;
  ExpectSame(StateOfRun(options), held);
}

void ExpectParts(const std::string& text,
                 const std::vector<std::string>& parts) {
  for (const std::string& part : parts) {
    EXPECT_NE(text.find(part), std::string::npos)
        << "expected: " << part << "\ngot:      " << text;
  }
}

TEST(CodedMoments, ACheckpointOfOtherMomentsIsRefused) {
  TempDir dir;
  const SessionOptions coded = CodedMoments(WriteWide(dir));
  SessionOptions plain = coded, narrow = coded;
  plain.optimizer.moments = "float32";
  narrow.optimizer.moments = "bfloat16";
  const std::tuple<SessionOptions, SessionOptions, const char*> cases[] = {
      {plain, coded, "] expected float8e4m3fn["},
      {coded, plain, " in float, got float8e4m3fn["},
      {coded, narrow, " in bfloat16, got float"}};
  for (const auto& [first, second, types] : cases) {
    auto begun = TrainingSession::Create(first);
    begun->Step(Batch(1), 1e-2);
    begun->Save(dir / "run");
    auto resumed = TrainingSession::Create(second);
    const std::string error = ErrorOf([&] {
      resumed->Restore(dir / "run");
      resumed->Step(Batch(2), 1e-2);
    });
    ExpectParts(error,
                {".exp_avg", types, ", got float", ": a run ", " `moments` "});
  }
}

// Four samples, as often as there are ranks: each rank's gradient is a fraction
// of the whole one, and their sum is exact.
std::vector<Batches> SameShares(int64_t ranks) {
  std::vector<Batches> steps;
  for (uint64_t step = 0; step < 3; ++step) {
    const TensorMap one = Batch(step + 10, 4);
    Tensor x = Tensor::Allocate(DType::kFloat, {4 * ranks, kIn});
    Tensor labels = Tensor::Allocate(DType::kInt64, {4 * ranks});
    for (int64_t i = 0; i < x.size(); ++i) {
      x.data<float>()[i] = one.at("x").data<float>()[i % (4 * kIn)];
    }
    for (int64_t i = 0; i < labels.size(); ++i) {
      labels.data<int64_t>()[i] = one.at("labels").data<int64_t>()[i % 4];
    }
    steps.push_back({{{"x", x}, {"labels", labels}}});
  }
  return steps;
}

// The second and the third step read what the codes keep.
TEST(CodedMoments, RanksThatDivideStateKeepTheBitsOfOne) {
  TempDir dir;
  SessionOptions options = CodedMoments(WriteWide(dir));
  const TensorMap want = TrainSteps(options, SameShares(1)).weights;
  options.seed = 6;
  EXPECT_FALSE(Same(TrainSteps(options, SameShares(1)).weights, want));
  options.seed = 5;
  for (Sharding what : {Sharding::kOptimizer, Sharding::kParameters}) {
    options.shard.what = what;
    ExpectSame(TrainRanks(2, options, SameShares(2))[0].weights, want);
  }
}

TensorMap WholeState(const std::string& folder) {
  auto checkpoint = LoadLatestCheckpoint(folder, kAnyModel);
  TensorMap state;
  for (const auto& [name, tensor] : checkpoint->state) {
    state[name] = tensor.Clone();
  }
  for (const auto& [name, tensor] : checkpoint->shards) {
    state[name] = tensor.Whole();
  }
  return state;
}

// Takes the checkpoint to the ranks of a mesh, and writes it again.
void SaveAgain(const Mesh& mesh, const SessionOptions& options,
               const std::string& from, const std::string& to) {
  RunRanks(static_cast<int>(mesh.ranks()), [&](Communicator& world) {
    const MeshRanks ranks(mesh, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    session->Restore(from);
    session->Prepare(
        {ShareOf(Batch(9, 12), ranks.data_rank(), ranks.mesh().data_ranks())});
    session->Save(to);
  });
}

// On 3 ranks the last part of 8 rows is shorter.
TEST(CodedMoments, ACheckpointGoesThroughAnyMesh) {
  TempDir dir;
  SessionOptions options = CodedMoments(WriteWide(dir));
  auto session = TrainingSession::Create(options);
  session->Step(Batch(1), 1e-2);
  session->Save(dir / "one");
  const TensorMap want = WholeState(dir / "one");
  options.shard.what = Sharding::kOptimizer;
  const Mesh meshes[] = {{.dp = 3}, {.dp = 2, .tp = 2}, {.dp = 2}};
  std::string from = dir / "one";
  for (const Mesh& mesh : meshes) {
    const std::string to = dir / ToString(mesh);
    SaveAgain(mesh, options, from, to);
    ExpectSame(WholeState(to), want);
    from = to;
  }
}

// Half of 640 columns ends within a block: this layer's moments are floats.
TEST(CodedMoments, PartsThatCutABlockStayFloats) {
  TempDir dir;
  const SessionOptions options = CodedMoments(WriteWide(dir, 640));
  auto alone = TrainingSession::Create(options);
  alone->Step(Batch(1), 1e-2);
  alone->Save(dir / "one");
  RunRanks(2, [&](Communicator& world) {
    const MeshRanks ranks(Mesh{.tp = 2}, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    const StepResult first = session->Step(Batch(1), 1e-2);
    ExpectParts(first.remark,
                {"`moments` fp8: 2 are codes, 4 are floats (",
                 ", 2 of these (20480 bytes) because ranks of the axis tp cut "
                 "blocks of 128 elements"});
    auto resumed = MakeSession(options, MakeCpuProvider(), &ranks);
    resumed->Restore(dir / "one");
    ExpectParts(ErrorOf([&] { resumed->Step(Batch(2), 1e-2); }),
                {"[state fc.weight.exp_avg",
                 "] expected float[8,320], got float8e4m3fn[8,320]: a run goes "
                 "on with the `moments`"});
  });
}

// A part has the codes of the whole.
TEST(CodedMoments, APartIsEncodedAsInTheWhole) {
  const Shape whole = {6, 1536};
  Tensor x = Random(whole, 7);
  for (int64_t i = 0; i < x.size(); ++i) {
    x.data<float>()[i] = std::fabs(x.data<float>()[i]);
  }
  auto encoded = [](const Tensor& values, const ElementPlaces& at) {
    Graph graph;
    graph.opset = 24;
    const std::vector<Tensor> inputs = {
        values,
        Tensor::Zeros(DType::kE4M3, values.shape()),
        Tensor::Zeros(DType::kFloat, MomentScaleShape(values.shape())),
        Tensor::Scalar(true),
        Tensor::Scalar(int64_t{3}),
        Tensor::Scalar(int64_t{4})};
    std::vector<Value*> operands;
    for (const Tensor& t : inputs) {
      operands.push_back(graph.AddInput(std::to_string(operands.size()),
                                        t.dtype(), t.shape()));
    }
    Builder b(graph);
    const Node& node = *b.Ops("EncodeSecondMoment", operands, 2,
                              {{"stream", int64_t{9}},
                               {"shift", at.shift},
                               {"row", at.run},
                               {"stride", at.stride},
                               {"begin", at.begin}},
                              kDomain)[0]
                            ->producer;
    return MakeCpuEvaluator()->Evaluate(node, inputs);
  };
  const std::vector<Tensor> all = encoded(x, {});
  for (const AxisSplit& split :
       {AxisSplit{.axis = 1}, {.axis = 1, .blocks = 3}, {.axis = 0}}) {
    EXPECT_FALSE(CutsMomentBlocks(whole, split, 2));
    for (int64_t rank : {0, 1}) {
      Shard shard = ShardOf(PartOf(whole, split, 2), 1, 2);
      shard.whole = whole;
      shard.tensor_part = {split, rank, 2};
      Shard scales = ShardOf(PartOf(MomentScaleShape(whole), split, 2), 1, 2);
      scales.tensor_part = shard.tensor_part;
      const auto part = encoded(PartOf(x, shard), PlacesOf(shard));
      const size_t rows = static_cast<size_t>(shard.rows);
      const Tensor codes = PartOf(all[0], shard);
      const Tensor sizes = PartOf(all[1], scales);
      const size_t columns = static_cast<size_t>(codes.dim(1));
      EXPECT_EQ(std::memcmp(part[0].raw(), codes.raw(), rows * columns), 0);
      EXPECT_EQ(std::memcmp(part[1].raw(), sizes.raw(),
                            rows * static_cast<size_t>(sizes.dim(1)) * 4),
                0);
    }
  }
  EXPECT_TRUE(CutsMomentBlocks(whole, {.axis = 1}, 8));
}

// Losses stay near the losses with float moments.
TEST(CodedMoments, Train) {
  TempDir dir;
  SessionOptions options = CodedMoments(WriteWide(dir));
  float last[2], first = 0;
  for (int coded : {0, 1}) {
    options.optimizer.moments = coded ? "fp8" : "float32";
    auto session = TrainingSession::Create(options);
    for (int step = 0; step < 12; ++step) {
      last[coded] = session->Step(Batch(1), 2e-3).loss;
      if (step == 0) first = last[coded];
    }
  }
  EXPECT_LT(last[0], 0.7f * first);
  EXPECT_NEAR(last[1], last[0], 0.1f * (first - last[0]));
}

}  // namespace
}  // namespace onnx_fp8
