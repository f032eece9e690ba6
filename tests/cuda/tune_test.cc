// SPDX-License-Identifier: Apache-2.0
//
// Products whose algorithm was timed.
#include "providers/cuda/gemm/tune.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "providers/cuda/cuda_provider.h"
#include "providers/cuda/gemm/product.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/memory_limit.h"
#include "tests/cuda/user_cache.h"
#include "tests/providers/cpu/run_node.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8::cuda {
namespace {

constexpr ProviderOptions kTune = {.tune = true};
constexpr int64_t kRuns = 5;  // of each algorithm that is timed
// Relative difference of sums in two orders.
constexpr double kClose = 1e-4;
constexpr int64_t kM = 48, kN = 32, kK = 128;

// Calls of each algorithm since the counts were reset.
using Starts = std::vector<int64_t>;

Starts StartsSoFar() {
  Starts starts;
  for (size_t i = 0; i < emulation::ProductAlgorithms().size(); ++i) {
    starts.push_back(emulation::Calls("algorithm " + std::to_string(i)));
  }
  return starts;
}

int64_t Waits() {
  return emulation::Calls("cudaEventSynchronize") +
         emulation::Calls("cudaStreamSynchronize");
}

// y = a · b + beta · c, of a provider of its own. It counts from its begin.
class Multiplication {
 public:
  explicit Multiplication(const ProviderOptions& options)
      : provider_(MakeCudaProvider(options)),
        product_({.m = kM,
                  .n = kN,
                  .k = kK,
                  .a = {.data = a_.raw()},
                  .b = {.data = b_.raw()},
                  .y = y_.raw()}) {
    provider_->Synchronize();
    emulation::ResetCounts();
  }

  Product& product() { return product_; }
  ExecutionProvider& provider() { return *provider_; }
  Products& products() { return queue().Own<Products>(); }

  void Multiply() { products().Multiply(product_, workspace_.get(), queue()); }
  Tensor y() { return provider_->ToHost(y_); }

 private:
  Queue& queue() { return *static_cast<Queue*>(provider_->queue()); }

  std::unique_ptr<ExecutionProvider> provider_;
  std::shared_ptr<void> workspace_ = provider_->Allocate(kProductWorkspace);
  Tensor a_ = provider_->Clone(RandomNormal({kM, kK}, 1)),
         b_ = provider_->Clone(RandomNormal({kK, kN}, 2)),
         y_ = provider_->Clone(RandomNormal({kM, kN}, 3));
  Product product_;
};

// a · b + beta · y, as the CPU computes it.
Tensor Expected(float beta) {
  return RunNode1("Gemm",
                  {RandomNormal({kM, kK}, 1), RandomNormal({kK, kN}, 2),
                   RandomNormal({kM, kN}, 3)},
                  {{"beta", Attribute(beta)}});
}

class Tuning : public testing::Test {
 protected:
  Tuning() { Offer({{9}, {3}, {5}}); }
  ~Tuning() override { emulation::SetProductAlgorithms({{.time = 1}}); }

  static void Offer(const std::vector<emulation::ProductAlgorithm>& all) {
    emulation::SetProductAlgorithms(all);
  }

  // The algorithm of the next call of a new provider.
  static size_t Chosen(const ProviderOptions& options) {
    Multiplication call(options);
    call.Multiply();
    emulation::ResetCounts();
    call.Multiply();
    Starts starts = StartsSoFar();
    EXPECT_EQ(Waits(), 0);
    EXPECT_EQ(std::ranges::count(starts, 0),
              static_cast<int64_t>(starts.size()) - 1);
    return static_cast<size_t>(std::ranges::find(starts, 1) - starts.begin());
  }

  UserCache cache_;
};

TEST_F(Tuning, TakesTheFastest) {
  Multiplication call(kTune);
  call.Multiply();
  EXPECT_EQ(StartsSoFar(), (Starts{kRuns, kRuns + 1, kRuns}));
  EXPECT_EQ(emulation::Calls("cudaEventSynchronize"), 3);
  Tensor first = call.y();
  emulation::ResetCounts();
  call.Multiply();
  EXPECT_EQ(StartsSoFar(), (Starts{0, 1, 0}));
  EXPECT_EQ(Waits(), 0);
  EXPECT_TRUE(Identical(call.y(), first));
  EXPECT_LT(LargestDifference(first, Expected(0)), kClose);
}

TEST_F(Tuning, TakesTheFirstOfEqualOnes) {
  Offer({{9}, {3}, {3}});
  EXPECT_EQ(Chosen(kTune), 1u);
}

TEST_F(Tuning, TakesWhatIsClearlyFaster) {
  Offer({{100}, {99}});
  EXPECT_EQ(Chosen(kTune), 0u);
}

TEST_F(Tuning, TimesEight) {
  Offer({{9}, {8}, {7}, {6}, {5}, {4}, {3}, {2}, {1}});
  EXPECT_EQ(Chosen(kTune), 7u);
}

TEST_F(Tuning, PassesOverWhatFails) {
  Offer({{9}, {1, true}, {5}});
  EXPECT_EQ(Chosen(kTune), 2u);
}

TEST_F(Tuning, SaysThatAllFail) {
  Offer({{9, true}, {1, true}});
  Multiplication call(kTune);
  ExpectError([&] { call.Multiply(); }, "cublasLtMatmul: ");
}

TEST_F(Tuning, IsOffAtFirst) {
  Multiplication call({});
  call.Multiply();
  EXPECT_EQ(StartsSoFar(), (Starts{1, 0, 0}));
  EXPECT_EQ(Waits(), 0);
}

TEST_F(Tuning, IsKeptForTheNextProcess) {
  EXPECT_EQ(Chosen(kTune), 1u);
  Offer({{1}, {3}, {5}});  // another one would be the fastest now
  Multiplication call(kTune);
  call.Multiply();
  EXPECT_EQ(StartsSoFar(), (Starts{0, 1, 0}));
  EXPECT_EQ(Waits(), 0);
  EXPECT_EQ(emulation::Calls("cublasLtMatmulAlgoGetHeuristic"), 0);
}

TEST_F(Tuning, ChangesNoOtherRun) {
  auto bits = [](const ProviderOptions& options) {
    Multiplication call(options);
    call.Multiply();
    return call.y();
  };
  Tensor before = bits({}), tuned = bits(kTune);
  EXPECT_FALSE(Identical(tuned, before));  // another order of sums
  EXPECT_TRUE(Identical(bits({}), before));
  EXPECT_EQ(Chosen({}), 0u);
  EXPECT_TRUE(Identical(bits(kTune), tuned));
}

TEST_F(Tuning, AddsOnce) {
  Tensor in_place, apart;
  for (Tensor* y : {&in_place, &apart}) {
    Multiplication call(kTune);
    Tensor c = call.provider().Clone(RandomNormal({kM, kN}, 3));
    call.product().beta = 0.5f;
    if (y == &apart) call.product().c = c.raw();
    call.Multiply();
    EXPECT_EQ(StartsSoFar()[1], y == &apart ? 1 : kRuns + 1);
    *y = call.y();
  }
  EXPECT_LT(LargestDifference(in_place, Expected(0.5f)), kClose);
  EXPECT_TRUE(Identical(apart, in_place));
}

TEST_F(Tuning, AddsOnceToAMatrixApart) {
  Multiplication call(kTune);
  Tensor c = call.provider().Clone(RandomNormal({kM, kN}, 3));
  call.product().beta = 0.5f;
  call.product().c = c.raw();
  emulation::ResetCounts();
  call.Multiply();
  EXPECT_EQ(StartsSoFar()[1], kRuns + 1);
  EXPECT_EQ(emulation::Calls("cudaMallocAsync"), 0);
  EXPECT_LT(LargestDifference(call.y(), Expected(0.5f)), kClose);
}

// Sums that are not finite touch nothing but what the product adds to.
TEST_F(Tuning, AddsInfinities) {
  Multiplication call(kTune);
  Tensor a = RandomNormal({kM, kK}, 1);
  a.data<float>()[0] = std::numeric_limits<float>::infinity();
  Tensor ours = call.provider().Clone(a);
  call.product().a.data = ours.raw();
  call.product().beta = 0.5f;
  call.Multiply();
  Tensor y = call.y(), want = Expected(0.5f);
  for (int64_t i = 0; i < y.size(); ++i) {
    float x = y.data<float>()[i];
    if (i < kN) {
      EXPECT_TRUE(std::isinf(x));
    } else {
      EXPECT_NEAR(x, want.data<float>()[i], kClose);
    }
  }
}

// Batches with gaps: two matrices of 20 rows, 24 rows apart.
TEST_F(Tuning, AddsBatches) {
  auto bits = [] {
    Multiplication call(kTune);
    Product& p = call.product();
    p.m = 20;
    p.batch = 2;
    p.a.batch_stride = 24 * kK;
    p.y_batch_stride = 24 * kN;
    p.beta = 0.5f;
    call.Multiply();
    return call.y();
  };
  Tensor y = bits(), want = Expected(0.5f), before = RandomNormal({kM, kN}, 3);
  for (int64_t i = 0; i < y.size(); ++i) {
    bool gap = i / kN % 24 >= 20;
    EXPECT_NEAR(y.data<float>()[i], (gap ? before : want).data<float>()[i],
                kClose);
  }
  EXPECT_TRUE(Identical(bits(), y));
}

// Without memory for a sum beside the real one nothing is timed, or kept.
TEST_F(Tuning, NeedsMemoryToAdd) {
  Multiplication call(kTune);
  call.product().beta = 0.5f;
  {
    MemoryLimit limit(emulation::TotalMemory() - emulation::FreeMemory());
    call.Multiply();
    EXPECT_EQ(StartsSoFar(), (Starts{1, 0, 0}));
    EXPECT_EQ(cudaGetLastError(), cudaSuccess);
  }
  EXPECT_LT(LargestDifference(call.y(), Expected(0.5f)), kClose);
  size_t free = emulation::FreeMemory();
  call.Multiply();
  EXPECT_EQ(StartsSoFar(), (Starts{kRuns + 1, kRuns + 1, kRuns}));
  call.provider().Synchronize();
  EXPECT_EQ(emulation::FreeMemory(), free);
}

TEST_F(Tuning, NeverTimesACapture) {
  Multiplication call(kTune);
  const int reports = emulation::Reports();
  auto untimed = call.provider().Record([&] { call.Multiply(); });
  EXPECT_EQ(StartsSoFar(), (Starts{1, 0, 0}));
  untimed->Replay();
  EXPECT_LT(LargestDifference(call.y(), Expected(0)), kClose);
  call.Multiply();
  Tensor tuned = call.y();
  emulation::ResetCounts();
  auto timed = call.provider().Record([&] { call.Multiply(); });
  EXPECT_EQ(StartsSoFar(), (Starts{0, 1, 0}));
  EXPECT_EQ(Waits(), 0);
  timed->Replay();
  EXPECT_TRUE(Identical(call.y(), tuned));
  EXPECT_EQ(emulation::Reports(), reports) << emulation::LastReport();
}

TEST_F(Tuning, NeedsNoTimeForAnAnswer) {
  Multiplication call(kTune);
  EXPECT_TRUE(call.products().Has(call.product()));
  EXPECT_EQ(StartsSoFar(), (Starts{0, 0, 0}));
  EXPECT_EQ(Waits(), 0);
}

struct Steps {
  std::vector<float> losses;
  std::vector<int64_t> waits, times;  // of the host, and that it asks for
};

Steps FourSteps(const std::string& model, const ProviderOptions& options,
                int64_t grad_accum) {
  SessionOptions session_options = Options(model, "tensorwise");
  session_options.grad_accum = grad_accum;
  auto session = MakeSession(session_options, MakeCudaProvider(options));
  Steps steps;
  for (uint64_t step = 0; step < 4; ++step) {
    Batches batches(static_cast<size_t>(grad_accum), Batch(step, 32));
    emulation::ResetCounts();
    steps.losses.push_back(session->Step(batches, 1e-2).loss);
    steps.waits.push_back(Waits());
    steps.times.push_back(emulation::Calls("cudaEventElapsedTime"));
  }
  return steps;
}

TEST_F(Tuning, FirstStepsWaitMore) {
  TempDir dir;
  std::string model = WriteMlp(dir, false);
  const int reports = emulation::Reports();
  for (int64_t grad_accum : {1, 2}) {
    UserCache cache;
    Steps untuned = FourSteps(model, {}, grad_accum);
    Steps tuned = FourSteps(model, kTune, grad_accum);
    Steps again = FourSteps(model, kTune, grad_accum);
    EXPECT_GT(tuned.times[0], 0);
    EXPECT_GT(tuned.waits[0], untuned.waits[0]);
    tuned.times[0] = 0;
    tuned.waits[0] = untuned.waits[0];
    for (const Steps* steps : {&untuned, &tuned, &again}) {
      EXPECT_EQ(steps->times, std::vector<int64_t>(4));
      EXPECT_EQ(steps->waits, untuned.waits);
    }
    EXPECT_EQ(again.losses, tuned.losses);
    for (size_t i = 0; i < tuned.losses.size(); ++i) {
      EXPECT_NEAR(tuned.losses[i], untuned.losses[i], 1e-3);
    }
  }
  EXPECT_EQ(emulation::Reports(), reports) << emulation::LastReport();
}

}  // namespace
}  // namespace onnx_fp8::cuda
