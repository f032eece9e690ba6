// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Lets products add to the sums over micro-batches themselves. A micro step
// adds the gradient of each parameter to a sum, which is state. Where that
// gradient is a product in float that nothing else reads, and the provider has
// a kernel that adds it in place, the Add goes: a Gemm takes the sum as its C,
// an FP8 product becomes its form of graph/schemas/product_sums.cc. The
// gradient itself is then never written.
//
// Comes after StoreNarrow, because a gradient that is rounded must be rounded
// before it is added, and after PadOperands, which changes the ops of products.
void AddToSums(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
