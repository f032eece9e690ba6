// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Joins an op with the quantizers of its results, where the provider has a
// kernel that does both (graph/schemas/fused_quantize.h): codes, transposed
// codes and amax are written while the result is in registers, and the result
// itself only if another node reads it. Views and one RoundTo may lie between
// the two; the RoundTo stays if another node reads it. No bit changes.
//
// Scales must be given before the step, as they are with delayed and static
// scaling, or belong to rows that the op works on one at a time, as norms do
// with rowwise scales. Another dynamic scale needs the amax of all of a tensor
// before the first code, so such quantizers stay; KernelTraits::measures spares
// them the pass that finds the amax.
//
// Comes after MakeKMajor and PadOperands, which decide who needs transposed
// codes and zeros, and after StoreNarrow, which decides how results are
// rounded.
void FuseQuantize(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
