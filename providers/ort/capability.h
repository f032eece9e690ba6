// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "providers/kernel.h"
#include "providers/ort/ort_api.h"

namespace onnx_fp8 {

// Nodes that run as one.
using NodeGroup = std::vector<const OrtNode*>;

// The nodes of the graph that we run, in groups that are as large as possible.
// No path from a node of a group to another one leaves the group. We run a node
// if its op has one of the kernels or a body of such ops, if its operands and
// results are tensors of numbers, and if operands that decide sizes follow from
// shapes and constants. We run no control flow, and nothing inside it.
std::vector<NodeGroup> GroupsOf(const OrtGraph* graph,
                                const KernelRegistry& kernels);

}  // namespace onnx_fp8
