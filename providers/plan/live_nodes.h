// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unordered_set>

#include "graph/graph.h"

namespace onnx_fp8 {

// The nodes on which outputs and next values of state depend. Adds these values
// and all that such a node reads to `read`. Errors: state that is no
// initializer; a value without a producer.
std::unordered_set<const Node*> FindLive(
    const Graph& graph, std::unordered_set<const Value*>* read);

}  // namespace onnx_fp8
