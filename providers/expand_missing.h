// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Replaces every node without a kernel, and every node whose op is in
// `forced`, by its op's body (graph/expand.h), until all have kernels or no
// body is left; the planner then lists what is missing.
void ExpandMissing(Graph& graph, const KernelRegistry& kernels,
                   const std::set<std::string>& forced,
                   const Evaluator* evaluator);

}  // namespace onnx_fp8
