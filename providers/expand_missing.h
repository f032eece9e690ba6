// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <set>
#include <string>

#include "graph/evaluator.h"
#include "graph/graph.h"
#include "onnx_fp8/budgets.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// What becomes of ops that have a body and no kernel.
enum class Missing {
  kExpand,  // they run by their bodies
  kLeave,   // MakePlan reports them: a slow run has a reason that is seen
};

// Replaces the nodes that have no kernel by the bodies of their ops
// (graph/passes/expand.h), and so on in the bodies; nodes without kernel and
// body stay for MakePlan to report. Ops named in `forced` ("ScaledMatMul" or
// "onnx_fp8.ScaledMatMul") are replaced even if there is a kernel. `evaluator`
// computes what a body derives from shapes; null: nothing is computed.
// All bodies together may take what `budgets` have. REQUIRES: concrete shapes.
// Errors: a forced name that is no op with a body, or what ExpandNode finds
// wrong.
void ExpandMissing(Graph& graph, const KernelRegistry& kernels,
                   const std::set<std::string>& forced = {},
                   const Evaluator* evaluator = nullptr,
                   const Budgets& budgets = {},
                   Missing missing = Missing::kExpand);

}  // namespace onnx_fp8
