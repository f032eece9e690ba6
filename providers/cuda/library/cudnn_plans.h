// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cudnn.h>

#include <exception>
#include <map>
#include <memory>

#include "base/check.h"
#include "providers/cuda/library/cudnn_library.h"

namespace onnx_fp8::cuda {

// A handle of cuDNN, and the plans that were made with it, by problem. A Plan
// is made of a problem and the handle.
template <typename Problem, typename Plan>
class CudnnPlans {
 public:
  CudnnPlans() {
    if (OpenCudnn() == 0) return;
    if (cudnnCreate(&handle_) != CUDNN_STATUS_SUCCESS) handle_ = nullptr;
  }
  ~CudnnPlans() {
    plans_.clear();
    if (handle_) cudnnDestroy(handle_);
  }
  CudnnPlans(const CudnnPlans&) = delete;
  CudnnPlans& operator=(const CudnnPlans&) = delete;

  // null: there is no library, or it can't compute the problem.
  const Plan* PlanOf(const Problem& problem) {
    auto [known, added] = plans_.try_emplace(problem);
    if (added && handle_) {
      try {
        known->second = std::make_unique<Plan>(problem, handle_);
      } catch (const std::exception&) {  // the frontend throws others than ours
      }
    }
    return known->second.get();
  }

  // Adds the problem's work to the stream. REQUIRES: it has a plan. Errors:
  // cuDNN's.
  template <typename Memory>
  void Run(const Problem& problem, const Memory& memory, void* workspace,
           cudaStream_t stream) {
    cudnnStatus_t status = cudnnSetStream(handle_, stream);
    Check(status == CUDNN_STATUS_SUCCESS,
          "cuDNN: cudnnSetStream: ", cudnnGetErrorString(status));
    PlanOf(problem)->Run(handle_, memory, workspace);
  }

 private:
  cudnnHandle_t handle_ = nullptr;                  // null: there is no library
  std::map<Problem, std::unique_ptr<Plan>> plans_;  // null: no plan
};

}  // namespace onnx_fp8::cuda
