// SPDX-License-Identifier: Apache-2.0
//
// Inputs, weights and state: which of them the results of nodes depend on.
#pragma once

#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Whether one of the node's operands is among `values`.
bool ReadsAny(const Node& node, const std::unordered_set<const Value*>& values);

// The nodes on which `last` depends, each behind the ones that it reads; `last`
// is the last one. Leaves out nodes in `done`, and adds all others to it.
std::vector<const Node*> NodesTo(const Node& last,
                                 std::unordered_set<const Node*>* done);

// Whether the node computes the same from one update of the state to the next.
// Each of its operands is then state, a constant or in `known`, and the node
// draws no random numbers. False for a node without operands and for a node
// with a subgraph.
bool DependsOnStateAlone(const Node& node,
                         const std::unordered_set<const Value*>& known);

// Values that are computed from frozen weights, and otherwise from constants
// and kept scales alone, through any number of nodes. No collective makes any
// of them. REQUIRES: nodes sorted.
std::unordered_set<const Value*> FrozenAlone(const Graph& graph);

// Nodes by what their results depend on, through any number of nodes.
// REQUIRES: roles set, nodes sorted.
struct Dependences {
  explicit Dependences(const std::vector<Node*>& nodes);

  std::unordered_set<const Node*> activations;  // inputs and weights
  std::unordered_set<const Node*> copies;       // weights, but no input
};

}  // namespace onnx_fp8
