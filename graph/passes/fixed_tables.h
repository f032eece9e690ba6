// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_map>

#include "graph/graph.h"

namespace onnx_fp8 {

// Float initializers whose values say that they are no weights, and what they
// are instead. Exporters write a model's buffers like its parameters.
// - A mask: its first row holds infinities or values of -1e9 and below.
// - Positions by sines and cosines: a² + b² = 1 for all pairs of elements, of
//   two initializers of one shape (rotary tables), or of one, neighbours or the
//   halves of its last axis (sinusoidal encodings). Half of the pairs at least
//   must have no 0 in them: scales of 1 and biases of 0 are parameters.
std::unordered_map<const Value*, std::string> FixedTables(const Graph& graph);

}  // namespace onnx_fp8
