// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/provider.h"

namespace onnx_fp8 {

// The bytes that a kernel of this provider reads from memory and writes to it,
// where CostOf counts each operand and result once: some operands are read
// twice, a table is read in part, and a workspace is written and read. It knows
// the nodes of `bench nodes` that do not multiply. The kernels' own notes on
// their traffic are beside them (providers/cuda/ops, fp8).
double MovedBytes(const Node& node, ExecutionProvider& provider);

}  // namespace onnx_fp8
