// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "onnx_fp8/budgets.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// How ops with a body and without a kernel are handled.
enum class Missing {
  kExpand,  // they run by their bodies
  kLeave,   // MakePlan reports them: a reason for slowness is seen
};

// Replaces nodes without a kernel by the bodies of their ops
// (graph/passes/expand.h), and so on inside the bodies. Nodes without kernel
// and body stay, and MakePlan reports them. Ops named in `forced`
// ("ScaledMatMul" or "onnx_fp8.ScaledMatMul") are replaced even if they have a
// kernel. `evaluator` computes values that a body derives from shapes; null:
// nothing is computed. All bodies together may use up `budgets`. REQUIRES:
// concrete shapes. Errors: a forced name that is no op with a body; as
// ExpandNode's.
void ExpandMissing(Graph& graph, const KernelRegistry& kernels,
                   const std::set<std::string>& forced = {},
                   const Evaluator* evaluator = nullptr,
                   const Budgets& budgets = {},
                   Missing missing = Missing::kExpand);

}  // namespace onnx_fp8
