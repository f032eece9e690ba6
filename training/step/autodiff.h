// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <vector>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "graph/node_notes.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

struct BackwardResult {
  // The gradient of the loss by each wanted value: same dtype, same shape. A
  // value on which the loss does not depend is not in the map. Two values may
  // share one gradient.
  std::map<Value*, Value*> gradient;
  // The gradient of the loss by itself: `seed`, or a constant 1 that nothing
  // but the backward graph reads.
  Value* seed = nullptr;
};

// Appends the nodes that compute the gradients of `loss` by the `wanted` values
// (parameters, graph inputs, results of nodes). They are named "grad.…" and
// carry the metadata of the node whose gradient they compute. If that node has
// a name, it is the metadata entry kForwardName.
//
// An op without a gradient rule is replaced by its function body, if it has one
// (graph/passes/expand.h). Forward nodes may get further outputs (Dropout's
// mask).
//
// If a node matters only for one value of a flag (graph/needed_when.h), its
// gradients are zero for the other value, not NaN.
//
// `evaluator` computes values that bodies and rules derive from constants.
//
// All gradients are multiplied by `seed`, a float that is no constant; null: by
// 1.
//
// REQUIRES: nodes in execution order. Errors: a loss that is not a single
// float; a value without a concrete shape between the wanted values and the
// loss; ops with neither rule nor body, all in one message; bodies that take
// more than `spending` has left (null: than the default budgets).
BackwardResult BuildBackward(Graph& graph, Value* loss,
                             const std::vector<Value*>& wanted,
                             const Evaluator& evaluator,
                             Spending* spending = nullptr,
                             Value* seed = nullptr);

}  // namespace onnx_fp8
