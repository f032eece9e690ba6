// SPDX-License-Identifier: Apache-2.0
//
// How many kernels and memsets a recorded step has. Products are cuBLASLt's and
// do not count. A step of a small model takes as long as its launches do, so
// each number is a budget: a change that needs more must say why here.
// Delayed: kernels that write codes start twice (providers/cuda/core/result.h),
// but read and write fewer bytes.
#include <gtest/gtest.h>

#include <tuple>

#include "providers/cuda/cuda_provider.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/support/corpus.h"
#include "tests/support/forwarding_provider.h"
#include "tests/training/corpus_case.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

struct Budget {
  std::string model, recipe;
  int64_t kernels, memsets;
};

void PrintTo(const Budget& b, std::ostream* out) {
  *out << b.model << " " << b.recipe;
}

// The provider, but each node runs alone.
class NothingTogether : public ForwardingProvider {
 public:
  NothingTogether() : ForwardingProvider(MakeCudaProvider()) {
    for (const auto& [name, entry] : CudaKernels().entries()) {
      KernelTraits traits = entry.traits;
      traits.many = nullptr;
      kernels_.Add(name.second, entry.kernel, traits, name.first);
    }
  }
};

std::unique_ptr<CorpusCase> CaseOf(const std::string& model,
                                   SessionOptions* options) {
  std::unique_ptr<CorpusCase> found;
  for (const CorpusFile& file : CorpusFiles()) {
    bool wanted = file.fixture && file.name == model && file.variant == "d18";
    if (wanted) found = std::make_unique<CorpusCase>(file);
  }
  *options = found->options;
  return found;
}

class CudaLaunchesTest : public testing::TestWithParam<Budget> {
 protected:
  CudaLaunchesTest() {
    case_ = CaseOf(GetParam().model, &options_);
    options_.recipe = ParseRecipe(GetParam().recipe);
    options_.optimizer.clip_norm = 1;
  }

  std::unique_ptr<CorpusCase> case_;
  SessionOptions options_;
};

TEST_P(CudaLaunchesTest, AreWithinTheBudget) {
  auto session = MakeSession(options_, MakeCudaProvider());
  session->Step(case_->feeds, 1e-3);
  emulation::ResetCounts();
  session->Start({case_->feeds}, 1e-3);  // is recorded
  EXPECT_LE(emulation::Calls("cudaLaunchKernel"), GetParam().kernels);
  EXPECT_LE(emulation::Calls("cudaMemsetAsync"), GetParam().memsets);
  EXPECT_EQ(emulation::Calls("cudaGraphLaunch"), 1);
  session->Finish();
}

TEST_P(CudaLaunchesTest, ThatServeManyTensorsChangeNoBit) {
  auto together = MakeSession(options_, MakeCudaProvider());
  auto alone = MakeSession(options_, std::make_unique<NothingTogether>());
  for (int i = 0; i < 3; ++i) {
    StepResult a = together->Step(case_->feeds, 1e-3);
    StepResult b = alone->Step(case_->feeds, 1e-3);
    EXPECT_EQ(a.loss, b.loss);
    EXPECT_EQ(a.grad_norm, b.grad_norm);
  }
  EXPECT_EQ(together->ReportMemory().live_bytes,
            alone->ReportMemory().live_bytes);
  // Another order has other gaps between results.
  EXPECT_LE(static_cast<double>(together->Memory().arena_bytes),
            1.05 * static_cast<double>(alone->Memory().arena_bytes));
}

// Products add themselves to sums over two micro-batches, and to sums within a
// step. A kernel adds the gradients that autocast rounds.
TEST(CudaAccumulation, IsPartOfTheProducts) {
  struct Run {
    int64_t adds = 0;  // launches
    float norm = 0;    // of the gradient
  };
  auto run = [](const char* recipe, DType dtype, bool apart) {
    SessionOptions options;
    auto c = CaseOf("llama", &options);
    options.recipe = ParseRecipe(recipe);
    options.dtype = dtype;
    options.grad_accum = 2;
    options.optimizer.clip_norm = 1;
    if (apart) options.skip_passes = {"AddToSums"};
    auto session = MakeSession(options, MakeCudaProvider());
    std::vector<TensorMap> batches(2, c->feeds);
    session->Step(batches, 1e-3);
    emulation::ResetCounts();
    Run result = {.norm = session->Step(batches, 1e-3).grad_norm};
    for (const auto& [name, traffic] : emulation::Traffic()) {
      if (name.find("AddOp") != name.npos) result.adds += traffic.launches;
    }
    return result;
  };
  // Of 15 linear layers. Products also add what several layers read: q, k, v
  // and gate, up in two blocks; in bfloat16 only k and v, because the other
  // gradients are rounded before they are added.
  constexpr int64_t kFloats = 15 + 2 * 3, kNarrow = 15 + 2;
  for (const auto& [recipe, dtype, added] :
       {std::tuple{"off", DType::kFloat, kFloats},
        {"tensorwise", DType::kFloat, kFloats},
        {"rowwise", DType::kFloat, kFloats},
        {"tensorwise", DType::kBFloat16, kNarrow}}) {
    SCOPED_TRACE(Concat(recipe, " ", Name(dtype)));
    Run together = run(recipe, dtype, false), apart = run(recipe, dtype, true);
    EXPECT_EQ(apart.adds - together.adds, 2 * added);
    EXPECT_NEAR(together.norm, apart.norm, 1e-4 * apart.norm);
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaLaunchesTest,
                         testing::Values(Budget{"nanogpt", "off", 81, 3},
                                         Budget{"nanogpt", "tensorwise", 114,
                                                4},
                                         Budget{"nanogpt", "delayed", 131, 4},
                                         Budget{"llama", "off", 70, 2},
                                         Budget{"llama", "tensorwise", 140, 3},
                                         Budget{"llama", "delayed", 153, 3},
                                         Budget{"vit", "rowwise", 229, 21},
                                         Budget{"nanogpt", "mxfp8", 228, 22}));

}  // namespace
}  // namespace onnx_fp8
