// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// Adds state for a copy of a weight, zeros of this type and shape.
Value* AddWeightCopy(Graph& graph, const std::string& name, const Value& like);

// Moves the quantization and the rounding of values that depend on state alone,
// the weights, out of a micro step, which runs several times between two
// updates, into a new graph, which runs once. Collectives of such values move,
// too. An AllGather moves only with `gathers`, and so do copies of its result:
// they then stay in memory. State that the micro step itself updates does not
// count. The outputs of the new graph become inputs of `graph`, under the same
// names and kept in as many bits (Value::narrow). Null if there is nothing to
// move. REQUIRES: known dtypes and shapes.
std::unique_ptr<Graph> SplitWeightCopies(Graph& graph, bool gathers = false);

// The same for a whole step, whose state all counts, but only for codes: the
// quantization, the reductions of amaxes and the gathers of codes move. A
// weight that is rounded or gathered as it is stays so; the new graph has a
// node of its own for it where codes are made of it. Its nodes have the same
// order on ranks with other batches, and each of its collectives is a call.
std::unique_ptr<Graph> SplitWeightCodes(Graph& graph);

}  // namespace onnx_fp8
