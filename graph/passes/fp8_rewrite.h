// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/fp8_plan.h"

namespace onnx_fp8 {

// Replaces each admitted Gemm by quantised operands (operand_copies.h) and a
// ScaledMatMul, or a ScaledMatMulBlock where an operand has several scales.
// Adds the state of kept scales (without the update, see scale_update.h).
// `known`: slots laid out by an earlier graph of the same model; a tensor that
// has none there is scaled dynamically. `seed`, `gradients`: as ClassifyGemms.
// Errors: an impossible recipe, a static scale that is not given.
Fp8Plan Fp8Rewrite(Graph& graph, const Fp8Spec& spec, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients,
                   const std::vector<ScaleSlot>* known = nullptr);

}  // namespace onnx_fp8
