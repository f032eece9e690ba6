// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Lets products add themselves to sums: to sums over micro-batches, which are
// state, and to sums within a step, such as the gradient of a weight that
// several layers or chunks of the loss share. Where a product in float is read
// by nothing but an Add, the other operand is there before it, and the provider
// has a kernel that adds it in place, the Add goes: a Gemm takes the operand as
// its C, an FP8 product becomes its form of graph/schemas/product_sums.cc. The
// product alone is then never written. Products that are too deep for the
// kernel (KernelTraits::adds_depth) stay: on CPUs the chunks of a loss are
// added so, sums over micro-batches mostly are not.
//
// Comes after StoreNarrow, because a gradient that is rounded must be rounded
// before it is added, and after PadOperands, which changes the ops of products.
void AddToSums(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
