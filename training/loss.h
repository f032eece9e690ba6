// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// Appends the loss of `spec` to a forward graph and returns it; the graph's
// shapes may be unknown. The loss is fp32, of rank 0, named "loss" (or
// "loss_1", … if the model has a value of that name). It is not made a graph
// output.
//
// The label becomes a graph input named spec.label, unless there is one: int64
// of the logits' shape without the last axis for cross_entropy, else float of
// the output's shape. Formulas, means over all elements:
//   cross_entropy    -log softmax(logits)[label], labels of -100 do not count
//   mse              (y - label)²
//   bce_with_logits  label softplus(-y) + (1 - label) softplus(y), which
//                    neither overflows nor cancels
//   output:NAME      that graph output, of one element
//
// Errors: another kind; an output that does not exist (the message lists the
// outputs) or does not fit; a label name that another value has.
Value* AddLoss(Graph& graph, const LossSpec& spec);

}  // namespace onnx_fp8
