// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "providers/cuda/convolution/library.h"

struct cudnnContext;

namespace onnx_fp8::cuda {

// A convolution that cuDNN has compiled. REQUIRES: OpenCudnn() found it.
class ConvolutionPlan {
 public:
  // For the handle's GPU. Errors: cuDNN can't compute the problem.
  ConvolutionPlan(const ConvolutionProblem& problem, cudnnContext* handle);
  // For a GPU of compute capability 9.0 that need not be here: cuDNN's JSON
  // describes it. Such a plan can't run. Errors: the same.
  ConvolutionPlan(const ConvolutionProblem& problem, const std::string& gpu);
  ~ConvolutionPlan();
  ConvolutionPlan(const ConvolutionPlan&) = delete;
  ConvolutionPlan& operator=(const ConvolutionPlan&) = delete;

  size_t workspace() const { return workspace_; }

  // Adds the work to the handle's stream. Errors: cuDNN's.
  void Run(cudnnContext* handle, const ConvolutionMemory& memory,
           void* workspace) const;

 private:
  struct Graph;
  std::unique_ptr<Graph> graph_;
  size_t workspace_ = 0;
};

}  // namespace onnx_fp8::cuda
