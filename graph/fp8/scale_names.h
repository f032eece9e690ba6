// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "graph/fp8/gemm_decision.h"
#include "graph/fp8/gemm_matrices.h"
#include "graph/fp8/scale_slots.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// The slot of each operand whose scale is kept, by GEMM and input.
using ScaleNames = std::map<std::pair<const Node*, int>, ScaleSlot>;

// Names the scales of the operands. GEMMs that read one matrix share its scale,
// which is named after the first of them. A GEMM that the filter keeps out of
// FP8 counts as if it were in FP8, so a scale has the same name under any
// filter. `known`: the slots of an earlier graph of the same model; where it
// has the GEMMs in another order, theirs counts.
ScaleNames NameScales(const std::vector<GemmDecision>& decisions,
                      const GemmMatrices& operands, const Recipe& recipe,
                      const std::vector<ScaleSlot>* known = nullptr);

// "weight", "grad_output" or "input".
const char* OperandName(const GemmInfo& gemm, int slot);

}  // namespace onnx_fp8
