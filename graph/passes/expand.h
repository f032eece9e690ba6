// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

// True if other ops define the node's op: an op of ours, a function of the
// newest ONNX operator set, or one of extra_bodies.cc.
bool HasBody(const Node& node);

// The nodes of the body, as it is written; functions that it calls stay nodes.
// REQUIRES: a node of `opset` whose operands have types. Errors: no body; one
// of extra_bodies.cc without concrete shapes.
std::unique_ptr<Graph> BodyGraphOf(const Node& node, int opset);

// Replaces the node by the body of its op. Its outputs stay the same values.
// The new nodes take its place and its metadata; the values between them have
// shapes and fresh names. Values that the body computes from shapes and
// constants alone become constants, as far as `evaluator` can compute them.
// Functions that the body calls stay nodes. `spending`: as Specialize's.
// REQUIRES: concrete input shapes. Errors: no body; a shape in the body that
// stays unknown; a budget that is used up; a collective of more than one rank.
void ExpandNode(Graph& graph, Node& node, const Evaluator* evaluator = nullptr,
                Spending* spending = nullptr);

}  // namespace onnx_fp8
