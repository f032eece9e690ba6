// SPDX-License-Identifier: Apache-2.0
//
// Models, meshes and recipes against one process. Each mesh meets each recipe
// and each model; ONNX_FP8_MESHES=all runs all combinations.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/training/corpus_case.h"
#include "tests/training/rank_runs.h"

namespace onnx_fp8 {
namespace {

constexpr const char* kModels[] = {"nanogpt", "llama", "bert_cls", "gpt2_eager",
                                   "vit"};
constexpr const char* kRecipes[] = {"off", "tensorwise", "delayed", "rowwise"};

struct MeshRow {
  Mesh mesh;
  Sharding what = Sharding::kNone;
};

const MeshRow kMeshes[] = {{{.dp = 2}},
                           {{.dp = 4}},
                           {{.dp = 2}, Sharding::kParameters},
                           {{.dp = 3}, Sharding::kParameters},
                           {{.dp = 4}, Sharding::kParameters},
                           {{.replicate = 2, .dp = 2}, Sharding::kParameters},
                           {{.tp = 2}},
                           {{.dp = 2, .tp = 2}},
                           {{.dp = 2, .tp = 2}, Sharding::kParameters}};

constexpr int64_t kSamples = 12;  // 2, 3 and 4 data ranks divide them
constexpr size_t kSteps = 10;

// The case's samples again and again.
TensorMap Repeated(const TensorMap& feeds) {
  TensorMap batch;
  for (const auto& [name, some] : feeds) {
    Shape shape = some.shape();
    const int64_t n = shape[0];
    shape[0] = kSamples;
    Tensor all = Tensor::Allocate(some.dtype(), shape);
    const size_t row = some.bytes() / static_cast<size_t>(n);
    for (int64_t i = 0; i < kSamples; ++i) {
      std::memcpy(
          static_cast<std::byte*>(all.raw()) + static_cast<size_t>(i) * row,
          static_cast<const std::byte*>(some.raw()) +
              static_cast<size_t>(i % n) * row,
          row);
    }
    // Each micro-batch counts as many labels.
    for (int64_t i = 0; all.dtype() == DType::kInt64 && i < all.size(); ++i) {
      auto& label = all.data<int64_t>()[i];
      if (label == -100) label = 0;
    }
    batch[name] = all;
  }
  return batch;
}

RankRun OneProcess(SessionOptions options, const TensorMap& batch,
                   int64_t micro_batches) {
  options.grad_accum = micro_batches;
  Batches step;
  for (int64_t i = 0; i < micro_batches; ++i) {
    step.push_back(ShareOf(batch, i, micro_batches));
  }
  return TrainSteps(options, std::vector<Batches>(kSteps, step), nullptr, 1e-3);
}

bool Runs(size_t model, size_t mesh, size_t recipe) {
  const char* meshes = std::getenv("ONNX_FP8_MESHES");
  if (meshes && std::string(meshes) == "all") return true;
  return (model + mesh) % std::size(kRecipes) == recipe;
}

class MeshMatrix : public testing::TestWithParam<size_t> {};

// Each micro-batch has its own scales of activations, and so has each data
// rank. Losses of an FP8 run drift apart once a sum in another order has moved
// a rounding; the first one has seen no such sum but its own.
TEST_P(MeshMatrix, TrainsAsOneProcess) {
  const size_t model = GetParam();
  for (const CorpusFile& file : CorpusFiles()) {
    if (file.name != kModels[model] || file.variant != "d18") continue;
    const CorpusCase c(file);
    const TensorMap batch = Repeated(c.feeds);
    const std::vector<Batches> steps(kSteps, {batch});
    for (size_t m = 0; m < std::size(kMeshes); ++m) {
      for (size_t r = 0; r < std::size(kRecipes); ++r) {
        if (!Runs(model, m, r)) continue;
        const auto& [mesh, what] = kMeshes[m];
        SCOPED_TRACE(Concat(kModels[model], " ", kRecipes[r], " ",
                            ToString(mesh), " ", static_cast<int>(what)));
        SessionOptions options = c.options;
        options.recipe = ParseRecipe(kRecipes[r]);
        const RankRun want =
            OneProcess(options, batch, r == 0 ? 1 : mesh.data_ranks());
        options.shard.what = what;
        const RankRun got = TrainRanks(mesh, options, steps, 1e-3).back();
        for (size_t i = 0; i < (r == 0 ? kSteps : 1); ++i) {
          SCOPED_TRACE(Concat("step ", i));
          const StepResult &x = got.steps[i], &y = want.steps[i];
          EXPECT_NEAR(x.loss, y.loss, (r == 0 ? 1e-6 : 1e-4) * y.loss);
          if (r > 0) continue;
          EXPECT_NEAR(x.grad_norm, y.grad_norm, 1e-5 * y.grad_norm);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, MeshMatrix,
                         testing::Range(size_t{0}, std::size(kModels)),
                         [](const auto& info) {
                           return std::string(kModels[info.param]);
                         });

}  // namespace
}  // namespace onnx_fp8
