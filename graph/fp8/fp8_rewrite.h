// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>
#include <vector>

#include "graph/fp8/gemm_matrices.h"
#include "graph/fp8/scale_update.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// Replaces each admitted Gemm by quantized operands and a ScaledMatMul, or a
// ScaledMatMulBlock if an operand has several scales. Adds the state of kept
// scales (without the update, see scale_update.h). `known`: slots that an
// earlier graph of the same model laid out; a tensor without a slot there is
// scaled dynamically. `names`: the names of the scales, if the graph is a part
// of a model; REQUIRES: names for all GEMMs that the spec admits. `seed`,
// `gradients`: as in ClassifyGemms. Errors: an impossible recipe, a missing
// static scale.
Fp8Plan Fp8Rewrite(Graph& graph, const Fp8Spec& spec, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients,
                   const std::vector<ScaleSlot>* known = nullptr,
                   const ScaleNames* names = nullptr);

}  // namespace onnx_fp8
