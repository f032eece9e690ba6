// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/fp8/gemm_decision.h"

namespace onnx_fp8 {

// Puts the products that `spec` admits into FP8, as RewriteModel does.
// Initializers become plain constants again, so that copies of weights in FP8
// are computed once. Returns all decisions.
//
// `file` is the model that the graph was made from; null if it is not known. A
// session does not keep notes about modules and may give constants other names:
// the file tells them. Errors: those of Fp8Rewrite. REQUIRES: no delayed
// scales.
std::vector<GemmDecision> RewriteProducts(Graph& graph, Fp8Spec spec,
                                          const Graph* file);

}  // namespace onnx_fp8
