// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "onnx_fp8/session.h"
#include "providers/provider.h"
#include "providers/run/executor.h"

namespace onnx_fp8 {

// Runs the forward and the backward pass of a model. The input, the parameters
// and the gradients stay in the provider's memory, as within a training step. A
// session would copy the input to a GPU and the gradients back. These copies
// take longer than the products of a layer.
class ResidentLayer {
 public:
  // `input`: for the model's only input. With options.dtype of 16 bits it is
  // kept in 16 bits, if all kernels that read it can do so. Errors:
  // TrainingSession's.
  ResidentLayer(const SessionOptions& options, const Tensor& input,
                ExecutionProvider& provider);

  // Returns when the work is done.
  void Run();

  const Graph& graph() const { return *graph_; }

 private:
  std::shared_ptr<Graph> graph_;
  ExecutionProvider& provider_;
  std::unique_ptr<Executor> executor_;
  TensorMap state_;
};

}  // namespace onnx_fp8
