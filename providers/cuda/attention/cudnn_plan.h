// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "providers/cuda/attention/library.h"

struct cudnnContext;

namespace onnx_fp8::cuda {

// A problem that cuDNN has compiled. REQUIRES: OpenCudnn() found it.
class CudnnPlan {
 public:
  // For the handle's GPU. Errors: cuDNN can't compute the problem.
  CudnnPlan(const LibraryProblem& problem, cudnnContext* handle);
  // For a GPU of compute capability 9.0 that need not be here: cuDNN's JSON
  // describes it. Such a plan can't run. Errors: the same.
  CudnnPlan(const LibraryProblem& problem, const std::string& gpu);
  ~CudnnPlan();
  CudnnPlan(const CudnnPlan&) = delete;
  CudnnPlan& operator=(const CudnnPlan&) = delete;

  size_t workspace() const { return workspace_; }

  // Add the work to the handle's stream. Errors: cuDNN's.
  void Run(cudnnContext* handle, const LibraryForward& memory,
           void* workspace) const;
  void Run(cudnnContext* handle, const LibraryBackward& memory,
           void* workspace) const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
  size_t workspace_ = 0;
};

}  // namespace onnx_fp8::cuda
