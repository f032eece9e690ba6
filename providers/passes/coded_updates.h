// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The updates of parameters whose kernels read and write state as codes
// (KernelTraits::coded_state), in the graph's order.
std::vector<Node*> CodedUpdates(Graph& graph, const KernelRegistry& kernels);

// Whether the node is the Cast of a bfloat16 to a float.
bool WidensBFloat16(const Node& node);

}  // namespace onnx_fp8
