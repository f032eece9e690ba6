// SPDX-License-Identifier: Apache-2.0
//
// Training gives the same numbers, bit for bit, whichever thread computes a
// range.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <thread>

#include "base/parallel.h"
#include "base/random.h"
#include "onnx_fp8/session.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kBatch = 4, kSeq = 64;

TensorMap Tokens(uint64_t seed) {
  TensorMap feeds;
  for (const char* name : {"input_ids", "labels"}) {
    Tensor& ids = feeds[name] = Tensor::Allocate(DType::kInt64, {kBatch, kSeq});
    for (int64_t i = 0; i < ids.size(); ++i) {
      ids.data<int64_t>()[i] = static_cast<int64_t>(
          RandomBelow(seed, static_cast<uint64_t>(i), 256));
    }
    ++seed;
  }
  return feeds;
}

// Losses and gradient norms of three steps; they depend on all weights.
std::vector<float> Train(const std::string& recipe) {
  SessionOptions options;
  options.model = SourcePath("samples/gpt_tiny/gpt_tiny.onnx");
  options.loss.kind = "cross_entropy";
  options.recipe = ParseRecipe(recipe);
  options.optimizer.clip_norm = 0.5;
  auto session = TrainingSession::Create(options);
  std::vector<float> numbers;
  for (uint64_t step = 0; step < 3; ++step) {
    StepResult result = session->Step(Tokens(2 * step), 1e-2);
    numbers.insert(numbers.end(), {result.loss, result.grad_norm});
  }
  return numbers;
}

// One thread, which computes the ranges in a random order.
class Shuffled : public ParallelBackend {
 public:
  void Run(int64_t n, int, const std::function<void(int64_t)>& task) override {
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (int64_t i : order) task(i);
  }

 private:
  std::mt19937 random_{1};
};

class Threads : public testing::TestWithParam<const char*> {
 protected:
  ~Threads() override {
    SetParallelBackend(nullptr);
    SetNumThreads(before_);
  }

 private:
  int before_ = NumThreads();
};

INSTANTIATE_TEST_SUITE_P(Recipes, Threads,
                         testing::Values("off", "tensorwise", "delayed",
                                         "blockwise"),
                         [](const auto& info) { return info.param; });

TEST_P(Threads, NeitherTheirNumberNorTheOrderOfRangesMatters) {
  SetNumThreads(1);
  std::vector<float> alone = Train(GetParam());
  for (int threads : {2, 3, 8}) {
    SetNumThreads(threads);
    EXPECT_EQ(Train(GetParam()), alone) << threads;
    Shuffled host;
    SetParallelBackend(&host);
    EXPECT_EQ(Train(GetParam()), alone) << threads;
    SetParallelBackend(nullptr);
  }
}

TEST_P(Threads, SessionsMayTrainAtTheSameTime) {
  SetNumThreads(2);
  std::vector<float> alone = Train(GetParam());
  std::vector<std::vector<float>> numbers(3);
  std::vector<std::thread> sessions;
  for (auto& to : numbers) {
    sessions.emplace_back([&] { to = Train(GetParam()); });
  }
  for (std::thread& session : sessions) session.join();
  for (const auto& one : numbers) EXPECT_EQ(one, alone);
}

}  // namespace
}  // namespace onnx_fp8
