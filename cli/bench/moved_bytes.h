// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// Returns the number of bytes that this provider's kernel reads from memory and
// writes to memory. CostOf counts each operand and each result once. A kernel
// may read an operand twice, read only a part of a table, or write a workspace
// and read it. REQUIRES: a node of `bench nodes` that does not multiply. The
// headers of the kernels (providers/cuda/ops, fp8) name their traffic.
double MovedBytes(const Node& node, ExecutionProvider& provider);

}  // namespace onnx_fp8
