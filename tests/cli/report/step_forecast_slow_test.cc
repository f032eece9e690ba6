// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "base/check.h"
#include "cli/report/step_forecast.h"
#include "collectives/mesh.h"
#include "graph/builder.h"
#include "graph/onnx/onnx_io.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kSamples = 8;  // of all ranks

ForecastSpec SpecOf(const SessionOptions& options, const Mesh& mesh) {
  ForecastSpec spec;
  spec.session = options;
  spec.mesh = mesh;
  spec.data.batch_size = kSamples;
  spec.cluster.gpu = *FindGpu("h100");
  spec.cluster.network = ClusterOf(spec.cluster.gpu.node_bytes, 50e9);
  return spec;
}

// What the first rank receives in its second step.
WireBytes CountedBytes(const SessionOptions& options, const Mesh& mesh) {
  WireBytes counted;
  RunRanks(static_cast<int>(mesh.ranks()), [&](Communicator& world) {
    const MeshRanks ranks(mesh, world);
    auto session = MakeSession(options, MakeCpuProvider(), &ranks);
    const TensorMap share =
        ShareOf(Batch(1, kSamples), ranks.data_rank(), mesh.data_ranks());
    session->Step(share, 1e-2);
    const WireBytes before = world.wire_bytes();
    session->Step(share, 1e-2);
    WireBytes after = world.wire_bytes();
    // Ranks with other samples ask each other before a step what they lack.
    int64_t lacks = 0;
    if (mesh.data_ranks() > 1) {
      world.AllReduce(Reduction::kMax, DType::kInt64, &lacks, &lacks, 1);
    }
    after.all_reduce -= world.wire_bytes().all_reduce - after.all_reduce;
    if (world.rank() > 0) return;
    counted = {after.all_reduce - before.all_reduce,
               after.all_gather - before.all_gather,
               after.reduce_scatter - before.reduce_scatter,
               after.broadcast - before.broadcast};
  });
  return counted;
}

WireBytes PredictedBytes(const StepForecast& forecast) {
  WireBytes bytes;
  for (const CallsTotal& calls : forecast.time.collectives) {
    int64_t& kind = calls.op == "AllReduce"       ? bytes.all_reduce
                    : calls.op == "AllGather"     ? bytes.all_gather
                    : calls.op == "ReduceScatter" ? bytes.reduce_scatter
                                                  : bytes.broadcast;
    kind += static_cast<int64_t>(calls.node_bytes + calls.net_bytes);
  }
  return bytes;
}

TEST(StepForecast, BytesAreThoseThatASessionCounts) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const Mesh& mesh :
       {Mesh{.dp = 2}, Mesh{.dp = 3}, Mesh{.replicate = 2, .dp = 2},
        Mesh{.tp = 2}, Mesh{.dp = 2, .tp = 2}}) {
    for (Sharding what :
         {Sharding::kNone, Sharding::kOptimizer, Sharding::kParameters}) {
      if (what != Sharding::kNone && mesh.dp == 1) continue;
      for (const char* recipe : {"off", "tensorwise"}) {
        SCOPED_TRACE(ToString(mesh) + " " + recipe + " " +
                     std::to_string(static_cast<int>(what)));
        SessionOptions options = Options(model, recipe);
        options.shard.what = what;
        const WireBytes bytes =
            PredictedBytes(ForecastStep(SpecOf(options, mesh)));
        EXPECT_GT(bytes.all_reduce, 0);
        EXPECT_EQ(bytes, CountedBytes(options, mesh));
      }
    }
  }
}

// Weights (16,8) and (4,16).
TEST(StepForecast, AnMlpOfTwoLayersByHand) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.shard.what = Sharding::kParameters;
  const StepForecast forecast = ForecastStep(SpecOf(options, {.dp = 4}));
  EXPECT_EQ(forecast.trained, 16 * 8 + 4 * 16);
  EXPECT_EQ(forecast.samples, 2);
  // A quarter of the rows of each, in float32, and two moments.
  const size_t part = 4 * 8 + 1 * 16;
  EXPECT_EQ(forecast.memory.parameters, 4 * part);
  EXPECT_GE(forecast.memory.optimizer, 8 * part);
  EXPECT_LE(forecast.memory.optimizer, 8 * part + 64);
  EXPECT_EQ(PredictedBytes(forecast).reduce_scatter,
            static_cast<int64_t>(3 * 4 * part));
  // Forward and gradient of both weights, gradient of the hidden values.
  EXPECT_DOUBLE_EQ(forecast.time.model_flops,
                   2 * 2 * (2 * 16 * 8 + 3 * 4 * 16));
}

constexpr int64_t kWidth = 128;

// Writes a chain of layers, each of kWidth x kWidth weights.
std::string WriteChain(const TempDir& dir, uint64_t layers) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kWidth});
  x->axis_names = {"batch", ""};
  for (uint64_t i = 0; i < layers; ++i) {
    const std::string name = "layers." + std::to_string(i) + ".weight";
    Value* w = graph.AddInitializer(name, Random({kWidth, kWidth}, i));
    x = b.Op("Relu", {b.Op("MatMul", {x, w})});
  }
  graph.outputs.push_back(x);
  const std::string path = dir / ("chain" + std::to_string(layers) + ".onnx");
  WriteModel(graph, path);
  return path;
}

// A layer adds its activations of one sample and a small part of its gradient
// to the memory of a rank, but no copy of its weight.
TEST(StepForecast, NoCopyOfAWeightLivesFromForwardToBackward) {
  TempDir dir;
  const std::string models[] = {WriteChain(dir, 4), WriteChain(dir, 12)};
  for (const char* recipe :
       {"tensorwise", "rowwise", "blockwise", "mxfp8", "off"}) {
    for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
      for (GatherAs gather :
           {GatherAs::kFloat8, GatherAs::kBFloat16, GatherAs::kFloat}) {
        SCOPED_TRACE(
            Concat(recipe, " ", Name(dtype), " ", static_cast<int>(gather)));
        size_t arena[2];
        for (int i : {0, 1}) {
          SessionOptions options = Options(models[i], recipe);
          options.dtype = dtype;
          options.shard = {Sharding::kParameters, gather};
          options.bucket_bytes = 0;  // a bucket holds whole gradients
          ForecastSpec spec = SpecOf(options, {.dp = 64});
          spec.data.batch_size = 64;
          arena[i] = ForecastStep(spec).memory.arena;
        }
        EXPECT_LT(arena[1] - arena[0], 8 * kWidth * kWidth / 4);
      }
    }
  }
}

// Writes blocks of two layers, with weights of other shapes.
std::string WriteBlocks(const TempDir& dir, uint64_t blocks) {
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kWidth});
  x->axis_names = {"batch", ""};
  for (uint64_t i = 0; i < 2 * blocks; ++i) {
    const std::string name = "layers." + std::to_string(i) + ".weight";
    const Shape shape =
        i % 2 == 0 ? Shape{kWidth, 2 * kWidth} : Shape{2 * kWidth, kWidth};
    Value* w = graph.AddInitializer(name, Random(shape, i));
    x = b.Op("Relu", {b.Op("MatMul", {x, w})});
  }
  graph.outputs.push_back(x);
  const std::string path = dir / "blocks.onnx";
  WriteModel(graph, path);
  return path;
}

CallsTotal CallsOf(const StepForecast& forecast, const std::string& op) {
  for (const CallsTotal& calls : forecast.time.collectives) {
    if (calls.op == op && calls.group == kDataRanks) return calls;
  }
  return {};
}

// The weights of a block are one call, in the forward and in the backward. The
// ring's hops then cost once a block; bytes cost the same.
TEST(StepForecast, ALongRingPaysPerBlock) {
  TempDir dir;
  SessionOptions options = Options(WriteBlocks(dir, 6));
  options.shard.what = Sharding::kParameters;
  CallsTotal gathers[2], sums[2];
  RingCost call;
  for (int joined : {0, 1}) {
    options.bucket_bytes = -joined;
    ForecastSpec spec = SpecOf(options, {.dp = 512});
    spec.data.batch_size = 512;
    const StepForecast forecast = ForecastStep(spec);
    gathers[joined] = CallsOf(forecast, "AllGather");
    sums[joined] = CallsOf(forecast, "ReduceScatter");
    call = CostOfRing("AllGather", 0, {512, 1}, spec.cluster.network);
  }
  // 12 weights in the forward; in the backward neither the first one's, because
  // nobody needs the gradient of x, nor the last one's, which is still there.
  EXPECT_EQ(gathers[0].calls, 12 + 10);
  EXPECT_EQ(gathers[1].calls, 6 + 5);
  EXPECT_NEAR(gathers[0].seconds - gathers[1].seconds, 11 * call.seconds, 1e-9);
  EXPECT_EQ(sums[0].calls, 12);
  EXPECT_EQ(sums[1].calls, 1);
}

// Weights (16,8) and (4,16). Their codes travel behind the update instead of
// before the forward.
TEST(StepForecast, CodesThatLiveBetweenStepsAreState) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const size_t codes = 16 * 8 + 4 * 16;
  for (const Mesh& mesh : {Mesh{.dp = 2}, Mesh{.tp = 2}}) {
    SCOPED_TRACE(ToString(mesh));
    SessionOptions options = Options(model, "tensorwise");
    if (mesh.dp > 1) options.shard.what = Sharding::kOptimizer;
    const StepForecast plain = ForecastStep(SpecOf(options, mesh));
    EXPECT_EQ(plain.memory.fp8_weights, 0u);
    options.primary_weights = "fp8";
    const StepForecast kept = ForecastStep(SpecOf(options, mesh));
    // Ranks of tp have parts. Scales and amaxes take 4 bytes each.
    const size_t own = codes / static_cast<size_t>(mesh.tp);
    EXPECT_GE(kept.memory.fp8_weights, own);
    EXPECT_LE(kept.memory.fp8_weights, own + 32);
    EXPECT_EQ(kept.memory.parameters, plain.memory.parameters);
    EXPECT_EQ(kept.memory.optimizer, plain.memory.optimizer);
    EXPECT_EQ(PredictedBytes(kept), PredictedBytes(plain));
    EXPECT_EQ(PredictedBytes(kept), CountedBytes(options, mesh));
  }
}

// A frozen weight that products read in FP8 is read by nobody else, but the
// session has it.
TEST(StepForecast, AFrozenWeightBesideItsCodesCounts) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false), "tensorwise");
  options.freeze = {"fc.weight"};
  const size_t want = ForecastStep(SpecOf(options, {})).memory.parameters;
  options.primary_weights = "fp8";
  EXPECT_EQ(ForecastStep(SpecOf(options, {})).memory.parameters, want);
}

// The first codes are made from all weights, the frozen ones included, which
// are rounded to bfloat16s on the way. The step itself needs much less.
TEST(StepForecast, TheArenaHoldsWhatTheFirstCodesNeed) {
  TempDir dir;
  constexpr int64_t kWide = 512;
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* x = graph.AddInput("x", DType::kFloat, Shape{-1, kWide});
  x->axis_names = {"batch", ""};
  Value* body = graph.AddInitializer("body.weight", Random({kWide, kWide}, 1));
  Value* head = graph.AddInitializer("head.weight", Random({kWide, 4}, 2));
  x = b.Op("MatMul", {b.Op("Relu", {b.Op("MatMul", {x, body})}), head});
  graph.outputs.push_back(x);
  const std::string path = dir / "frozen.onnx";
  WriteModel(graph, path);
  SessionOptions options = Options(path, "tensorwise");
  options.dtype = DType::kBFloat16;
  options.freeze = {"body.weight"};
  options.primary_weights = "fp8";
  EXPECT_EQ(ForecastStep(SpecOf(options, {})).memory.arena,
            static_cast<size_t>(2 * kWide * kWide));
}

// Activations are most of the memory of a long batch.
TEST(StepForecast, ComputesAgainWhatDoesNotFit) {
  TempDir dir;
  ForecastSpec spec = SpecOf(Options(WriteChain(dir, 12)), {});
  spec.data.batch_size = 4096;
  const size_t whole = ForecastStep(spec).memory.total() + kDeviceReserve;
  spec.session.memory = std::to_string(whole);
  const StepForecast fits = ForecastStep(spec);
  EXPECT_TRUE(fits.fit->fits());
  EXPECT_TRUE(fits.fit->again.empty());
  EXPECT_EQ(fits.fit->after, whole);

  spec.session.memory = "1";
  const StepForecast smallest = ForecastStep(spec);
  EXPECT_FALSE(smallest.fit->fits());
  EXPECT_EQ(smallest.fit->before, whole);
  EXPECT_LT(smallest.fit->after, whole);
  EXPECT_EQ(smallest.memory.total() + kDeviceReserve, smallest.fit->after);
  EXPECT_NE(smallest.notes.back().find("`release_gradients` saves up to "),
            std::string::npos)
      << smallest.notes.back();

  spec.session.memory = std::to_string(smallest.fit->after);
  const StepForecast tight = ForecastStep(spec);
  EXPECT_TRUE(tight.fit->fits());
  EXPECT_FALSE(tight.fit->again.empty());
  EXPECT_FALSE(tight.fit->ops.empty());
  EXPECT_GT(tight.fit->time_share, 0);
  EXPECT_LE(tight.memory.total() + kDeviceReserve, smallest.fit->after);
  EXPECT_GT(tight.time.compute, fits.time.compute);

  // A GPU of the data sheet has room.
  spec.session.memory = "";
  spec.session.recompute = {"auto"};
  EXPECT_EQ(ForecastStep(spec).fit->limit, 80000000000u);
}

// All of them cross the bus once in each direction.
TEST(StepForecast, OffloadedMomentsAreNotOnTheGpu) {
  TempDir dir;
  ForecastSpec spec = SpecOf(Options(WriteMlp(dir, false)), {});
  constexpr size_t kMomentBytes = 8 * (kIn * kHidden + kHidden * kClasses);
  const StepForecast here = ForecastStep(spec);
  spec.session.offload = "optimizer";
  const StepForecast away = ForecastStep(spec);
  EXPECT_EQ(here.memory.outside, 0u);
  EXPECT_EQ(away.memory.outside, kMomentBytes);
  EXPECT_EQ(away.memory.optimizer, here.memory.optimizer - kMomentBytes);
  EXPECT_EQ(away.memory.total(), here.memory.total() - kMomentBytes);
  EXPECT_EQ(here.time.host_bytes, 0);
  EXPECT_EQ(away.time.host_bytes, static_cast<double>(kMomentBytes));
  EXPECT_GT(away.time.compute, here.time.compute);
  EXPECT_EQ(away.notes.back(),
            "`offload`: 1.5 KiB of moments lie in the host's memory");
  // A limit counts the GPU's bytes only.
  spec.session.memory = std::to_string(away.memory.total() + kDeviceReserve);
  EXPECT_TRUE(ForecastStep(spec).fit->fits());
  spec.session.offload = "none";
  const StepForecast tight = ForecastStep(spec);
  EXPECT_GT(tight.fit->before, away.memory.total() + kDeviceReserve);
}

TEST(StepForecast, AGpuHasNoStateInFiles) {
  TempDir dir;
  ForecastSpec spec = SpecOf(Options(WriteMlp(dir, false)), {});
  spec.session.state_dir = dir.path();
  EXPECT_TRUE(ErrorOf([&] {
                ForecastStep(spec);
              }).starts_with("`state_dir`: expected a step on the provider "));
}

// A language model of linear layers of 32 features.
std::string WriteTokens(const TempDir& dir, int64_t words) {
  constexpr int64_t kFeatures = 32;
  Graph graph;
  graph.opset = 18;
  Builder b(graph);
  Value* ids = graph.AddInput("input_ids", DType::kInt64, Shape{-1, -1});
  ids->axis_names = {"batch", "seq"};
  auto weight = [&](const std::string& name, const Shape& shape) {
    return graph.AddInitializer(name, Random(shape, name.size()));
  };
  Value* x = b.Op("Gather", {weight("embed.weight", {words, kFeatures}), ids});
  for (int i = 0; i < 4; ++i) {
    const std::string name = Concat("layers.", i, ".weight");
    x = b.Op("MatMul", {x, weight(name, {kFeatures, kFeatures})});
    x = b.Op("Tanh", {x});
  }
  Value* logits =
      b.Op("MatMul", {x, weight("head.weight", {kFeatures, words})});
  graph.Rename(logits, "logits");
  graph.outputs = {logits};
  std::string path = dir / Concat("tokens_", words, ".onnx");
  WriteModel(graph, path);
  return path;
}

// Each rank has 512 rows or more, and a chunk has 256.
void ExpectChunksCostNoMemory(const std::string& model, const char* recipe,
                              DType dtype) {
  for (const Mesh& mesh : {Mesh{}, Mesh{.dp = 2}, Mesh{.dp = 4}, Mesh{.tp = 2},
                           Mesh{.dp = 2, .tp = 2}}) {
    for (Sharding what : {Sharding::kNone, Sharding::kParameters}) {
      if (what != Sharding::kNone && mesh.dp == 1) continue;
      SCOPED_TRACE(Concat(model, " ", ToString(mesh), " ", recipe, " ",
                          Name(dtype), " ", static_cast<int>(what)));
      SessionOptions options = Options(model, recipe);
      options.dtype = dtype;
      options.shard.what = what;
      size_t bytes[2];
      for (int chunked : {0, 1}) {
        options.loss_chunk_bytes = chunked;
        ForecastSpec spec = SpecOf(options, mesh);
        spec.axes = {{"seq", 64 * mesh.data_ranks()}};
        bytes[chunked] = ForecastStep(spec).memory.total();
      }
      EXPECT_LE(100 * bytes[1], 101 * bytes[0]);
    }
  }
}

TEST(StepForecast, ChunksOfTheLossCostNoMemory) {
  TempDir dir;
  for (int64_t words : {16, 64, 512}) {
    const std::string model = WriteTokens(dir, words);
    ExpectChunksCostNoMemory(model, "off", DType::kFloat);
    ExpectChunksCostNoMemory(model, "off", DType::kBFloat16);
    ExpectChunksCostNoMemory(model, "tensorwise", DType::kBFloat16);
    ExpectChunksCostNoMemory(model, "rowwise", DType::kFloat);
  }
}

}  // namespace
}  // namespace onnx_fp8
