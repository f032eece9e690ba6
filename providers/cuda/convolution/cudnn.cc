// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/convolution/cudnn_plan.h"
#include "providers/cuda/convolution/library.h"
#include "providers/cuda/library/cudnn_plans.h"

namespace onnx_fp8::cuda {

struct ConvolutionLibrary::State {
  CudnnPlans<ConvolutionProblem, ConvolutionPlan> plans;
};

ConvolutionLibrary::ConvolutionLibrary() : state_(std::make_unique<State>()) {}
ConvolutionLibrary::~ConvolutionLibrary() = default;

std::optional<size_t> ConvolutionLibrary::Workspace(
    const ConvolutionProblem& problem) {
  const ConvolutionPlan* plan = state_->plans.PlanOf(problem);
  return plan ? std::optional(plan->workspace()) : std::nullopt;
}

void ConvolutionLibrary::Run(const ConvolutionProblem& problem,
                             const ConvolutionMemory& memory, void* workspace,
                             cudaStream_t stream) {
  state_->plans.Run(problem, memory, workspace, stream);
}

}  // namespace onnx_fp8::cuda
