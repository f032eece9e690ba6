// SPDX-License-Identifier: Apache-2.0
//
// Ranks that divide state against ranks that all keep it. Sums over ranks are
// made in the same order, so all bits are equal.
#include <gtest/gtest.h>

#include "providers/cpu/cpu_provider.h"
#include "tests/support/paths.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/files.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

constexpr Sharding kShardings[] = {Sharding::kOptimizer, Sharding::kGradients,
                                   Sharding::kParameters};

std::vector<Batches> ShardSteps(size_t micro_batches, uint64_t first = 0) {
  std::vector<Batches> steps;
  for (uint64_t step = first; step < first + 4; ++step) {
    Batches batches;
    for (uint64_t i = 0; i < micro_batches; ++i) {
      batches.push_back(Batch(10 * step + i, 7));
    }
    steps.push_back(batches);
  }
  return steps;
}

void ExpectSameRuns(const std::vector<RankRun>& a,
                    const std::vector<RankRun>& b) {
  for (size_t rank = 0; rank < a.size(); ++rank) {
    for (size_t i = 0; i < a[rank].steps.size(); ++i) {
      EXPECT_EQ(a[rank].steps[i].loss, b[rank].steps[i].loss) << "step " << i;
      EXPECT_NEAR(a[rank].steps[i].grad_norm, b[rank].steps[i].grad_norm,
                  1e-5 * a[rank].steps[i].grad_norm);
    }
    ExpectSame(a[rank].weights, b[rank].weights);
    ASSERT_EQ(a[rank].scales.size(), b[rank].scales.size());
    for (size_t i = 0; i < a[rank].scales.size(); ++i) {
      EXPECT_EQ(a[rank].scales[i].scale, b[rank].scales[i].scale);
    }
  }
}

// On 3 ranks the last part of the first weight is shorter, and the second one's
// is empty.
TEST(Sharding, TrainsAsWholeState) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  for (const char* recipe : {"off", "tensorwise", "delayed", "rowwise"}) {
    for (int size : {2, 3}) {
      SessionOptions options = Options(model, recipe);
      const auto whole = TrainRanks(size, options, ShardSteps(1));
      for (Sharding what : kShardings) {
        SCOPED_TRACE(
            Concat(recipe, " on ", size, " ranks, ", static_cast<int>(what)));
        options.shard.what = what;
        ExpectSameRuns(whole, TrainRanks(size, options, ShardSteps(1)));
      }
    }
  }
}

TEST(Sharding, MicroBatches) {
  TempDir dir;
  for (const char* recipe : {"off", "tensorwise", "delayed"}) {
    SessionOptions options = Options(WriteMlp(dir, false), recipe);
    options.grad_accum = 2;
    const auto whole = TrainRanks(2, options, ShardSteps(2));
    for (Sharding what : kShardings) {
      options.shard.what = what;
      // ZeRO-2 and ZeRO-3 add gradients over ranks first, then over
      // micro-batches.
      const auto runs = TrainRanks(2, options, ShardSteps(2));
      for (size_t i = 0; i < runs[0].steps.size(); ++i) {
        EXPECT_NEAR(runs[0].steps[i].loss, whole[0].steps[i].loss, 1e-6);
      }
      if (what == Sharding::kOptimizer) ExpectSameRuns(whole, runs);
    }
  }
}

// Gathered weights stay in 16 bits from one micro-batch to the next one.
TEST(Sharding, MicroBatchesIn16Bits) {
  TempDir dir;
  for (const char* recipe : {"off", "rowwise"}) {
    SessionOptions options = Options(WriteMlp(dir, false), recipe);
    options.dtype = DType::kBFloat16;
    options.grad_accum = 2;
    const auto whole = TrainRanks(2, options, ShardSteps(2));
    options.shard.what = Sharding::kOptimizer;
    for (GatherAs gather : {GatherAs::kBFloat16, GatherAs::kFloat}) {
      options.shard.gather = gather;
      ExpectSameRuns(whole, TrainRanks(2, options, ShardSteps(2)));
    }
  }
}

// A tied table, norms, attention; in 16 bits parts are rounded before they
// travel.
TEST(Sharding, Transformer) {
  const std::string model = SourcePath("tests/fixtures/nanogpt/d18.onnx");
  for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
    for (const char* recipe : {"tensorwise", "delayed"}) {
      SessionOptions options = Options(model, recipe);
      options.dtype = dtype;
      const auto whole = TrainRanks(2, options, TokenSteps());
      options.shard.what = Sharding::kParameters;
      for (GatherAs gather :
           {GatherAs::kFloat8, GatherAs::kBFloat16, GatherAs::kFloat}) {
        options.shard.gather = gather;
        ExpectSameRuns(whole, TrainRanks(2, options, TokenSteps()));
      }
    }
  }
}

// Buckets, and transfers beside the step, change no bit.
TEST(Sharding, BucketsAndOverlap) {
  const std::string model = SourcePath("tests/fixtures/nanogpt/d18.onnx");
  SessionOptions options = Options(model, "tensorwise");
  for (Sharding what : {Sharding::kNone, Sharding::kOptimizer,
                        Sharding::kGradients, Sharding::kParameters}) {
    options.shard.what = what;
    options.overlap = false;
    options.bucket_bytes = 0;
    const auto alone = TrainRanks(2, options, TokenSteps());
    options.overlap = true;
    for (int64_t bytes : {-1, 0, 5000}) {
      SCOPED_TRACE(Concat(static_cast<int>(what), ", buckets of ", bytes));
      options.bucket_bytes = bytes;
      ExpectSameRuns(alone, TrainRanks(2, options, TokenSteps()));
    }
  }
}

// A norm over parts is the norm of the whole: clipping is the same.
TEST(Sharding, Clipping) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.optimizer.clip_norm = 0.1;
  for (bool previous : {false, true}) {
    options.optimizer.clip_previous = previous;
    options.shard.what = Sharding::kNone;
    const auto whole = TrainRanks(3, options, ShardSteps(1));
    options.shard.what = Sharding::kParameters;
    const auto runs = TrainRanks(3, options, ShardSteps(1));
    for (size_t i = 0; i < runs[0].steps.size(); ++i) {
      EXPECT_NEAR(runs[0].steps[i].loss, whole[0].steps[i].loss, 1e-6);
      EXPECT_NEAR(runs[0].steps[i].grad_norm, whole[0].steps[i].grad_norm,
                  1e-6);
    }
  }
}

// Bytes that a rank receives in a step after the first.
WireBytes BytesOfAStep(const SessionOptions& options) {
  WireBytes bytes;
  RunRanks(2, [&](Communicator& ranks) {
    const MeshRanks mesh({.dp = ranks.size()}, ranks);
    auto session = MakeSession(options, MakeCpuProvider(), &mesh);
    const auto steps = ShardSteps(static_cast<size_t>(options.grad_accum));
    WireBytes before;
    for (size_t i : {0, 1}) {
      before = ranks.wire_bytes();
      Batches mine;
      for (const TensorMap& batch : steps[i]) {
        mine.push_back(ShareOf(batch, ranks));
      }
      session->Step(mine, 1e-2);
    }
    const WireBytes& after = ranks.wire_bytes();
    if (ranks.rank() == 0) {
      bytes = {after.all_reduce - before.all_reduce,
               after.all_gather - before.all_gather,
               after.reduce_scatter - before.reduce_scatter, 0};
    }
  });
  return bytes;
}

// The table of bytes for 2 ranks: weights of 16·8 and 4·16, of which a rank
// receives the other one's half. The backward reads only the second weight,
// which is still there.
TEST(Sharding, BytesOnTheWire) {
  constexpr int64_t kOnce = (16 * 8 + 4 * 16) / 2;
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  SessionOptions options = Options(model);
  options.shard.what = Sharding::kGradients;
  WireBytes bytes = BytesOfAStep(options);
  EXPECT_EQ(bytes.all_gather, 4 * kOnce);
  EXPECT_EQ(bytes.reduce_scatter, 4 * kOnce);
  options.shard.what = Sharding::kParameters;
  bytes = BytesOfAStep(options);
  EXPECT_EQ(bytes.all_gather, 4 * kOnce);
  EXPECT_EQ(bytes.reduce_scatter, 4 * kOnce);
  // FP8 takes a quarter of float, half of bfloat16, and one all-reduce of an
  // amax for each weight.
  options = Options(model, "tensorwise");
  options.shard.what = Sharding::kParameters;
  const WireBytes fp8 = BytesOfAStep(options);
  EXPECT_EQ(fp8.all_gather, kOnce);
  // The copy that the forward makes of a gathered weight serves the backward.
  options.shard.gather = GatherAs::kFloat;
  bytes = BytesOfAStep(options);
  EXPECT_EQ(bytes.all_gather, 4 * kOnce);
  EXPECT_EQ(fp8.all_reduce - bytes.all_reduce, 2 * 4);
  options.dtype = DType::kBFloat16;
  options.shard.gather = GatherAs::kBFloat16;
  EXPECT_EQ(BytesOfAStep(options).all_gather, 2 * kOnce);
  options.shard.gather = GatherAs::kFloat;
  EXPECT_EQ(BytesOfAStep(options).all_gather, 4 * kOnce);
  // ZeRO-1 adds gradients over ranks once, ZeRO-2 in each micro-batch. Both
  // gather once.
  options = Options(model);
  options.grad_accum = 3;
  options.shard.what = Sharding::kOptimizer;
  bytes = BytesOfAStep(options);
  EXPECT_EQ(bytes.reduce_scatter, 4 * kOnce);
  EXPECT_EQ(bytes.all_gather, 4 * kOnce);
  options.shard.what = Sharding::kGradients;
  bytes = BytesOfAStep(options);
  EXPECT_EQ(bytes.reduce_scatter, 3 * 4 * kOnce);
  EXPECT_EQ(bytes.all_gather, 4 * kOnce);
  // Amaxes of weights are reduced once, too.
  options.recipe = ParseRecipe("tensorwise");
  bytes = BytesOfAStep(options);
  options.shard.gather = GatherAs::kFloat;
  EXPECT_EQ(bytes.all_reduce - BytesOfAStep(options).all_reduce, 2 * 4);
}

struct Saved {
  TensorMap weights;
  float loss = 0;
};

// Restores from `from`, if it is not empty, trains and saves in `to`.
Saved TrainAndSave(int size, Sharding what, const std::string& model,
                   const std::string& from, const std::string& to) {
  Saved saved;
  RunRanks(size, [&](Communicator& ranks) {
    SessionOptions options = Options(model, "delayed");
    options.shard.what = what;
    const MeshRanks mesh({.dp = ranks.size()}, ranks);
    auto session = MakeSession(options, MakeCpuProvider(), &mesh);
    if (!from.empty()) session->Restore(from);
    float loss = 0;
    for (const Batches& step : ShardSteps(1, from.empty() ? 0 : 4)) {
      loss = session->Step(ShareOf(step[0], ranks), 1e-2).loss;
    }
    TempDir dir;
    TensorMap weights = Weights(*session, dir);
    if (what != Sharding::kNone || ranks.rank() == 0) session->Save(to);
    ranks.Barrier();
    if (ranks.rank() == 0) saved = {weights, loss};
  });
  return saved;
}

TEST(Sharding, AnyMeshReadsACheckpoint) {
  TempDir dir;
  const std::string model = WriteMlp(dir, false);
  const std::string whole = dir / "whole", parts = dir / "parts";
  TrainAndSave(4, Sharding::kNone, model, "", whole);
  TrainAndSave(4, Sharding::kParameters, model, "", parts);
  ExpectSame(StateIn(whole), StateIn(parts));
  struct Mesh {
    int size;
    Sharding what;
  };
  for (auto [size, what] :
       {Mesh{2, Sharding::kParameters}, Mesh{3, Sharding::kOptimizer},
        Mesh{1, Sharding::kNone}, Mesh{2, Sharding::kNone}}) {
    SCOPED_TRACE(Concat(size, " ranks, ", static_cast<int>(what)));
    const std::string a = dir / "a", b = dir / "b";
    const Saved first = TrainAndSave(size, what, model, whole, a);
    const Saved second = TrainAndSave(size, what, model, parts, b);
    EXPECT_EQ(first.loss, second.loss);
    ExpectSame(first.weights, second.weights);
    ExpectSame(StateIn(a), StateIn(b));
  }
}

TEST(Sharding, Errors) {
  TempDir dir;
  SessionOptions options = Options(WriteMlp(dir, false));
  options.shard.what = Sharding::kParameters;
  ExpectError([&] { MakeSession(options, MakeCpuProvider()); },
              "expected several ranks for `shard`, got one process");
}

}  // namespace
}  // namespace onnx_fp8
