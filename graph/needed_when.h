// SPDX-License-Identifier: Apache-2.0
//
// Which results matter only if a flag has one value: what an If on data has
// become is a Where by a flag of one element, and a branch that is not taken
// must neither run nor leave a trace in gradients, scales or statistics.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// A bool of one element, and what it must be.
struct Condition {
  Value* flag;
  bool value;
  bool operator==(const Condition&) const = default;
};

// All must hold; outermost first.
using Conditions = std::vector<Condition>;

// A Where by a flag of one element looks at one of its operands. For each node
// that the roots depend on, but only so: the conditions without which nobody
// looks at its results. Nodes that are not in the map matter always, or never.
// REQUIRES: no subgraphs. A graph whose nodes are not in execution order has no
// conditions.
using NeededMap = std::unordered_map<const Node*, Conditions>;
NeededMap NeededWhen(const Graph& graph,
                     const std::vector<const Value*>& roots);

// The node's entry; empty for null.
const Conditions& ConditionsOf(const NeededMap& needed, const Node* node);

// `x` if all conditions hold, else `otherwise`, which broadcasts to x.
Value* Choose(Builder& b, const Conditions& conditions, Value* x,
              Value* otherwise);

}  // namespace onnx_fp8
