// SPDX-License-Identifier: Apache-2.0
//
// Ranks whose shares of a batch differ in size, against one process.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/paths.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"

namespace onnx_fp8 {
namespace {

std::string NanoGpt() { return SourcePath("tests/fixtures/nanogpt/d18.onnx"); }

constexpr Sharding kWays[] = {Sharding::kNone, Sharding::kOptimizer,
                              Sharding::kGradients, Sharding::kParameters};

// Losses differ by the order of sums, and by 16-bit roundings that this moves.
void ExpectOneProcess(const SessionOptions& options, const Mesh& mesh,
                      const std::vector<Batches>& steps, double band) {
  SessionOptions alone = options;
  alone.shard.what = Sharding::kNone;
  const RankRun want = TrainSteps(alone, steps);
  for (const RankRun& got : TrainRanks(mesh, options, steps)) {
    for (size_t i = 0; i < steps.size(); ++i) {
      const double loss = want.steps[i].loss;
      EXPECT_FALSE(got.steps[i].skipped) << got.steps[i].cause;
      EXPECT_NEAR(got.steps[i].loss, loss, band * std::abs(loss)) << i;
    }
  }
}

// A batch of each size is a step.
std::vector<Batches> StepsOf(const std::vector<int64_t>& sizes) {
  std::vector<Batches> steps;
  for (size_t i = 0; i < sizes.size(); ++i) {
    steps.push_back(TokenSteps(1, sizes[i])[i % 4]);
  }
  return steps;
}

// Ranks with an even number of samples divide the samples, others each sample.
TEST(UnevenRanks, DivideTokensInTheirOwnWays) {
  for (DType dtype : {DType::kFloat, DType::kBFloat16}) {
    for (const Mesh& mesh :
         {Mesh{.dp = 2, .tp = 2}, {.dp = 3, .tp = 2}, {.dp = 2, .tp = 3}}) {
      SessionOptions options = Options(NanoGpt());
      options.dtype = dtype;
      for (Sharding what : {Sharding::kNone, Sharding::kParameters}) {
        SCOPED_TRACE(Concat(Name(dtype), " ", ToString(mesh)));
        options.shard.what = what;
        ExpectOneProcess(options, mesh, StepsOf({3, 7, 5}),
                         dtype == DType::kFloat ? 1e-5 : 1e-3);
      }
    }
  }
}

// With 6 samples in place of 7 the first rank has a plan and the second one
// lacks it.
TEST(UnevenRanks, OneRankLacksAPlan) {
  for (const Mesh& mesh :
       {Mesh{.dp = 2}, {.replicate = 2}, {.dp = 2, .tp = 2}}) {
    SCOPED_TRACE(ToString(mesh));
    ExpectOneProcess(Options(NanoGpt()), mesh, StepsOf({7, 6, 7, 8, 6}), 1e-5);
  }
}

// The weights of micro-batches are quantized once on each rank, or twice on
// all.
TEST(UnevenRanks, MicroBatchesOfOtherSizes) {
  SessionOptions options = Options(NanoGpt(), "tensorwise");
  options.grad_accum = 2;
  std::vector<Batches> steps;
  for (int64_t second : {6, 7, 8}) {
    steps.push_back({TokenSteps(1, 7)[0][0], TokenSteps(1, second)[1][0]});
  }
  for (const Mesh& mesh : {Mesh{.dp = 2}, {.dp = 2, .tp = 2}}) {
    for (Sharding what : kWays) {
      SCOPED_TRACE(Concat(ToString(mesh), " ", static_cast<int>(what)));
      options.shard.what = what;
      // Ranks with other samples have scales of their own.
      ExpectOneProcess(options, mesh, steps, 2e-2);
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
