// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/attention/cudnn_plan.h"
#include "providers/cuda/attention/library.h"
#include "providers/cuda/library/cudnn_plans.h"

namespace onnx_fp8::cuda {

struct AttentionLibrary::State {
  CudnnPlans<LibraryProblem, CudnnPlan> plans;
};

AttentionLibrary::AttentionLibrary() : state_(std::make_unique<State>()) {}
AttentionLibrary::~AttentionLibrary() = default;

std::optional<size_t> AttentionLibrary::Workspace(
    const LibraryProblem& problem) {
  const CudnnPlan* plan = state_->plans.PlanOf(problem);
  return plan ? std::optional(plan->workspace()) : std::nullopt;
}

void AttentionLibrary::Run(const LibraryProblem& problem,
                           const LibraryForward& memory, void* workspace,
                           cudaStream_t stream) {
  state_->plans.Run(problem, memory, workspace, stream);
}

void AttentionLibrary::Run(const LibraryProblem& problem,
                           const LibraryBackward& memory, void* workspace,
                           cudaStream_t stream) {
  state_->plans.Run(problem, memory, workspace, stream);
}

}  // namespace onnx_fp8::cuda
