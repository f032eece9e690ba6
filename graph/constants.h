// SPDX-License-Identifier: Apache-2.0
//
// The tensors that a file holds. Some exporters write weights as Constant
// nodes: another way to write an initializer, named by the node's output.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct HeldTensor {
  Value* value;
  Tensor data;
};

// The tensor that a Constant node makes; undefined if it is no tensor of
// numbers.
Tensor ConstantIn(const Node& node);

// Initializers in order of creation, then the outputs of Constant nodes; none
// from subgraphs.
std::vector<HeldTensor> HeldTensors(const Graph& graph);

// Moves the float tensors in bodies of If, Loop and Scan, at any depth, to the
// graph around them. They keep their form and name; the bodies read them from
// there. A tensor whose name is taken there stays. In a graph from a file the
// names are unique (body_names_internal.h).
void LiftFromBodies(Graph& graph);

// Returns the initializer `value` itself, or replaces the Constant node that
// makes it by an initializer of its name.
Value* AsInitializer(Graph& graph, Value* value);

// Replaces all Constant nodes with numbers by initializers of their names.
// Bodies of subgraphs keep theirs.
void LiftConstants(Graph& graph);

}  // namespace onnx_fp8
