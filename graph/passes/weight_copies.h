// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "graph/graph.h"

namespace onnx_fp8 {

// Moves the quantisation of what depends on state alone, the weights, out of a
// micro step, which runs several times between two updates, into a graph of
// its own, which runs once. The outputs of the new graph are inputs of `graph`
// then, under the same names. Null if nothing is to be moved. REQUIRES: known
// dtypes and shapes.
std::unique_ptr<Graph> SplitWeightCopies(Graph& graph);

}  // namespace onnx_fp8
