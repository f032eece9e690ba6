// SPDX-License-Identifier: Apache-2.0
//
// Ranks that divide the layers of random models, against one process.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/onnx/onnx_io.h"
#include "tests/training/random_model.h"
#include "tests/training/rank_runs.h"

namespace onnx_fp8 {
namespace {

float Largest(const Tensor& a, const Tensor& b) {
  float largest = 0;
  for (int64_t i = 0; i < a.size(); ++i) {
    largest =
        std::max(largest, std::abs(a.data<float>()[i] - b.data<float>()[i]));
  }
  return largest;
}

// Sums in another order.
void ExpectNearRun(const RankRun& got, const RankRun& want,
                   const std::string& file) {
  for (size_t i = 0; i < want.steps.size(); ++i) {
    SCOPED_TRACE(Concat("step ", i));
    const StepResult &a = got.steps[i], &b = want.steps[i];
    EXPECT_EQ(a.skipped, b.skipped);
    if (b.skipped) return;
    EXPECT_NEAR(a.loss, b.loss, 1e-4 * std::abs(b.loss) + 1e-6);
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-3 * b.grad_norm + 1e-6);
  }
  const auto first = ReadModel(file);
  for (const auto& [name, tensor] : want.weights) {
    const float moved = Largest(tensor, first->Find(name)->data);
    EXPECT_LE(Largest(tensor, got.weights.at(name)), 1e-3f * moved + 1e-6f)
        << name;
  }
}

// The run of rank 0; nothing if no layer can be divided.
std::optional<RankRun> Divided(const Mesh& mesh, const SessionOptions& options,
                               const std::vector<Batches>& steps) {
  try {
    return TrainRanks(mesh, options, steps)[0];
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("of the axis tp can divide"),
              std::string::npos)
        << error.what();
    return std::nullopt;
  }
}

TEST(TensorParallelRandom, TrainsAsOneProcess) {
  const uint64_t models = NumberOfRandomModels();
  uint64_t divided = 0;
  for (uint64_t seed = 0; seed < models; ++seed) {
    TempDir dir;
    const RandomModel model = WriteRandomModel(dir, seed);
    const std::vector<Batches> steps = {{model.Batch(2 * seed)},
                                        {model.Batch(2 * seed + 1)}};
    const RankRun want = TrainSteps(model.options, steps);
    for (int tp : {2, 3}) {
      SCOPED_TRACE(Concat("seed ", seed, ", tp=", tp, "\n", model.text));
      const auto got = Divided({.tp = tp}, model.options, steps);
      if (!got) continue;
      ++divided;
      ExpectNearRun(*got, want, model.options.model);
    }
  }
  EXPECT_GT(divided, models);  // of two for each model
}

// Shares of a batch that differ in size, and that change.
TEST(TensorParallelRandom, UnevenDataRanks) {
  struct Row {
    Mesh mesh;
    Sharding what = Sharding::kNone;
  };
  const Row rows[] = {{{.dp = 2, .tp = 2}},
                      {{.dp = 3}},
                      {{.dp = 3, .tp = 2}},
                      {{.dp = 2, .tp = 2}, Sharding::kParameters},
                      {{.replicate = 2, .dp = 2}, Sharding::kParameters}};
  const uint64_t models = NumberOfRandomModels() / 2;
  uint64_t divided = 0;
  for (uint64_t seed = 0; seed < models; ++seed) {
    TempDir dir;
    const RandomModel model = WriteRandomModel(dir, seed, true);
    std::vector<Batches> steps;
    for (int64_t size : {5, 4, 7}) {
      steps.push_back({model.Batch(3 * seed + 1, size)});
    }
    const auto& [mesh, what] = rows[seed % std::size(rows)];
    SCOPED_TRACE(Concat("seed ", seed, ", ", ToString(mesh), ", sharding ",
                        static_cast<int>(what), "\n", model.text));
    const RankRun want = TrainSteps(model.options, steps);
    SessionOptions options = model.options;
    options.shard.what = what;
    const auto got = Divided(mesh, options, steps);
    if (!got) continue;
    ++divided;
    ExpectNearRun(*got, want, model.options.model);
  }
  EXPECT_GT(2 * divided, models);
}

}  // namespace
}  // namespace onnx_fp8
