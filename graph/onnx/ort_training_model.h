// SPDX-License-Identifier: Apache-2.0
//
// training_model.onnx of onnxruntime-training: forward, loss and backward in
// one graph, whose parameters are inputs.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "graph/graph.h"
#include "onnx_fp8/budgets.h"
#include "onnx_fp8/tensor.h"

namespace onnx_fp8 {

// Suffixes of the values that hold the gradient of a parameter.
inline constexpr char kOrtBuffer[] = "_grad.accumulation.buffer";
inline constexpr char kOrtAccumulated[] = "_grad.accumulation.out";
inline constexpr char kOrtReset[] = "lazy_reset_grad";

// Errors: the graph is such a model, which can't be trained as it is.
void RequireNoOrtTrainingModel(const Graph& graph);

struct OrtForward {
  std::unique_ptr<Graph> graph;  // in its normal form
  // "cross_entropy", which the graph lacks: its first output has the scores, of
  // tokens if the model is one of tokens, and `labels` is the name of the
  // labels. Or "output:NAME": the graph computes the loss.
  std::string loss;
  std::string labels;
};

// The nodes that compute the loss, without a mean SoftmaxCrossEntropyLoss of
// all labels itself; dead nodes may be left. The parameters are initializers.
// Errors: ReadModel's; a model without the inputs and outputs of a training
// model; a parameter that is not in `parameters`, or has another shape or type
// there; a parameter there that is no input.
OrtForward ReadOrtForward(const std::string& path, const TensorMap& parameters,
                          const Budgets& budgets = {});

}  // namespace onnx_fp8
