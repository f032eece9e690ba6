// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Errors: a product of two operands in float8e5m2 that the provider does not
// have (KernelTraits::one_e5m2). The message names the items of the recipe.
void CheckProducts(const Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
