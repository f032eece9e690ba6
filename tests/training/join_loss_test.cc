// SPDX-License-Identifier: Apache-2.0
//
// Steps of all kinds in which one node must compute the loss and the gradient
// of its scores: the kernel of the gradient alone is an error here.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "providers/cpu/cpu_provider.h"
#include "tests/support/forwarding_provider.h"
#include "tests/support/paths.h"
#include "tests/support/thread_ranks.h"
#include "tests/training/rank_runs.h"
#include "tests/training/small_model.h"
#include "training/session/make_session.h"

namespace onnx_fp8 {
namespace {

void Refuse(KernelContext& ctx) { Fail("[", ctx.Where(), "] is alone"); }

class WithoutGradientAlone : public ForwardingProvider {
 public:
  WithoutGradientAlone() : ForwardingProvider(MakeCpuProvider()) {
    for (const auto& [name, entry] : CpuKernels().entries()) {
      const auto& [domain, op] = name;
      bool alone = domain == kDomain && op == "CrossEntropyGrad";
      kernels_.Add(op, alone ? Refuse : entry.kernel, entry.traits, domain);
    }
  }
};

// The losses of two steps.
std::vector<float> Train(const SessionOptions& options,
                         const MeshRanks* ranks = nullptr) {
  auto session =
      MakeSession(options, std::make_unique<WithoutGradientAlone>(), ranks);
  std::vector<float> losses;
  for (const Batches& batches :
       TokenSteps(static_cast<size_t>(options.grad_accum))) {
    if (losses.size() == 2) break;
    losses.push_back(session->Step(batches, 1e-2).loss);
  }
  return losses;
}

SessionOptions GptOptions() {
  return Options(SourcePath("tests/fixtures/nanogpt/d18.onnx"), "tensorwise");
}

TEST(JoinLoss, EveryStepHasOneNode) {
  SessionOptions plain = GptOptions(), chunks = GptOptions(),
                 narrow = GptOptions(), scaled = GptOptions(),
                 sums = GptOptions();
  chunks.loss_chunk_bytes = 1;
  narrow.dtype = DType::kBFloat16;
  scaled.dtype = DType::kFloat16;
  sums.grad_accum = 2;
  for (const SessionOptions& options : {plain, chunks, narrow, scaled, sums}) {
    EXPECT_EQ(Train(options).size(), 2u);
  }
}

TEST(JoinLoss, StepsOfDataRanksHaveOneNode) {
  RunRanks(2, [](Communicator& world) {
    const MeshRanks ranks({.dp = 2}, world);
    EXPECT_EQ(Train(GptOptions(), &ranks).size(), 2u);
  });
}

TEST(JoinLoss, TheTestSeesTwoNodes) {
  SessionOptions options = GptOptions();
  options.skip_passes = {"JoinLossGradient"};
  EXPECT_THROW(Train(options), Error);
}

}  // namespace
}  // namespace onnx_fp8
