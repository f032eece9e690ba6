// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Keeps values that RoundTo has rounded, or that a Cast has widened from 16
// bits, as 16-bit floats in memory (Value::narrow), where the kernel that
// writes a value and all kernels that read it can do so (KernelTraits). No
// result changes, except that products of two 16-bit operands may run on other
// instructions (gemm.h).
//
// A kernel that can round its result takes over the RoundTo behind it, also
// through moves, if nothing else reads the unrounded result. A RoundTo that no
// kernel takes over moves before them where it then rounds fewer elements, as
// before an Expand; but not before a collective. Values that are only moved, by
// views or by kernels with `moves`, are kept in 16 bits together or not at all.
// Inputs, initializers and outputs of the graph keep their dtype. A Cast whose
// result is kept as its operand is does not run (CanBeView).
//
// REQUIRES: an order of nodes in which they can run.
void StoreNarrow(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
