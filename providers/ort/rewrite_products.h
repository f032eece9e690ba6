// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/fp8/gemm_decision.h"

namespace onnx_fp8 {

// Copies notes about modules, which a session does not keep, from the file of
// the model to its products: those of the node of the same name, or else of the
// node that reads the same weight.
void CopyNotes(const Graph& file, Graph& graph);

// Puts the products that `spec` admits into FP8, as RewriteModel does.
// Initializers become plain constants again, so that copies of weights in FP8
// are computed once. Returns all decisions. REQUIRES: dynamic scales.
std::vector<GemmDecision> RewriteProducts(Graph& graph, Fp8Spec spec);

}  // namespace onnx_fp8
