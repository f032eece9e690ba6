// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Lets the kernel of an update read and write moments as the state keeps them
// (KernelTraits::coded_moments): the Casts that decode them, and the Casts or
// RoundStochastic that encode the new ones, join the update. It then has
// RoundStochastic's operands `seed` and `update` behind its own, and its
// attributes. All moments of an update join or none. No bit changes.
void JoinMoments(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
