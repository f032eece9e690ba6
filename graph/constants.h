// SPDX-License-Identifier: Apache-2.0
//
// The tensors that a file holds. Some exporters write weights as Constant
// nodes: an initializer by another spelling, named by the node's output.
#pragma once

#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct HeldTensor {
  Value* value;
  Tensor data;
};

// What a Constant node makes; undefined where that is no tensor of numbers.
Tensor ConstantIn(const Node& node);

// Initializers in order of creation, then the outputs of Constant nodes, those
// of subgraphs left out.
std::vector<HeldTensor> HeldTensors(const Graph& graph);

// Moves the float tensors that bodies of If, Loop and Scan hold, at any depth,
// to the graph around them, as they are spelled and named; the bodies read them
// from there. A tensor whose name is taken there stays: those of a file have
// names of their own (body_names_internal.h).
void LiftFromBodies(Graph& graph);

// The initializer `value` itself, or one of its name in place of the Constant
// node that makes it.
Value* AsInitializer(Graph& graph, Value* value);

}  // namespace onnx_fp8
