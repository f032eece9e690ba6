// SPDX-License-Identifier: Apache-2.0
//
// Finds the results that matter only if a flag has one value. An If on data has
// become a Where by a flag of one element. A branch that is not taken must not
// run, and must leave no trace in gradients, scales or statistics.
#pragma once

#include <unordered_map>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// A bool of one element, and the value that it must have.
struct Condition {
  Value* flag;
  bool value;
  bool operator==(const Condition&) const = default;
};

// All of them must hold; outermost first.
using Conditions = std::vector<Condition>;

// A Where by a flag of one element looks at only one of its operands. The map
// holds the nodes that the roots depend on through such operands alone, each
// with the conditions that must hold for its results to be read. A node that is
// not in the map is always needed, or dead. REQUIRES: no subgraphs. If the
// nodes of a graph are not in execution order, the map is empty.
using NeededMap = std::unordered_map<const Node*, Conditions>;
NeededMap NeededWhen(const Graph& graph,
                     const std::vector<const Value*>& roots);

// The node's entry; empty for null.
const Conditions& ConditionsOf(const NeededMap& needed, const Node* node);

// `x` if all conditions hold, else `otherwise`, which broadcasts to x.
Value* Choose(Builder& b, const Conditions& conditions, Value* x,
              Value* otherwise);

}  // namespace onnx_fp8
