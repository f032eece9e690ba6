// SPDX-License-Identifier: Apache-2.0
#include <cudnn.h>

#include <exception>
#include <map>

#include "base/check.h"
#include "providers/cuda/attention/cudnn_library.h"
#include "providers/cuda/attention/cudnn_plan.h"
#include "providers/cuda/attention/library.h"

namespace onnx_fp8::cuda {
namespace {

void CheckCudnn(cudnnStatus_t status, const char* call) {
  Check(status == CUDNN_STATUS_SUCCESS, "cuDNN: ", call, ": ",
        cudnnGetErrorString(status));
}

}  // namespace

struct AttentionLibrary::State {
  cudnnHandle_t handle = nullptr;  // null: there is no library
  std::map<LibraryProblem, std::unique_ptr<CudnnPlan>> plans;  // null: no plan

  State() {
    if (OpenCudnn() == 0) return;
    if (cudnnCreate(&handle) != CUDNN_STATUS_SUCCESS) handle = nullptr;
  }
  ~State() {
    plans.clear();
    if (handle) cudnnDestroy(handle);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  // null: cuDNN can't compute the problem.
  const CudnnPlan* PlanOf(const LibraryProblem& problem) {
    auto [known, added] = plans.try_emplace(problem);
    if (added && handle) {
      try {
        known->second = std::make_unique<CudnnPlan>(problem, handle);
      } catch (const std::exception&) {  // the frontend throws others than ours
      }
    }
    return known->second.get();
  }

  template <typename Memory>
  void Run(const LibraryProblem& problem, const Memory& memory, void* workspace,
           cudaStream_t stream) {
    CheckCudnn(cudnnSetStream(handle, stream), "cudnnSetStream");
    PlanOf(problem)->Run(handle, memory, workspace);
  }
};

AttentionLibrary::AttentionLibrary() : state_(std::make_unique<State>()) {}
AttentionLibrary::~AttentionLibrary() = default;

std::optional<size_t> AttentionLibrary::Workspace(
    const LibraryProblem& problem) {
  const CudnnPlan* plan = state_->PlanOf(problem);
  return plan ? std::optional(plan->workspace()) : std::nullopt;
}

void AttentionLibrary::Run(const LibraryProblem& problem,
                           const LibraryForward& memory, void* workspace,
                           cudaStream_t stream) {
  state_->Run(problem, memory, workspace, stream);
}

void AttentionLibrary::Run(const LibraryProblem& problem,
                           const LibraryBackward& memory, void* workspace,
                           cudaStream_t stream) {
  state_->Run(problem, memory, workspace, stream);
}

std::string AttentionLibraryText() {
  size_t version = OpenCudnn();
  if (version == 0) return "";
  return Concat("cuDNN ", version / 10000, ".", version / 100 % 100, ".",
                version % 100);
}

}  // namespace onnx_fp8::cuda
