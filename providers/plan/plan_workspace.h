// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// The memory that the node's kernel needs for itself (KernelTraits::workspace),
// as a value that no graph has; null: none. `queue`: the provider's, or null
// without a device. REQUIRES: concrete operands and results. Errors: the
// kernel's, naming the node.
std::shared_ptr<const Value> WorkspaceFor(const Node& node,
                                          const KernelTraits& traits,
                                          void* queue);

}  // namespace onnx_fp8
