// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "graph/fp8/gemm_decision.h"

namespace onnx_fp8 {

// Puts the products that `spec` admits into FP8, as RewriteModel does. `graphs`
// are parts of one session's graph. Initializers become plain constants again,
// so that copies of weights in FP8 are computed once. Returns all decisions.
//
// `file` is the model that the session was made from, as it is; null if it is
// not known. A session does not keep notes about modules, may give constants
// other names and may sort nodes differently: the file tells modules, and the
// names of static scales. Errors: as Fp8Rewrite's; static scales for a product
// that is not found in the file. REQUIRES: no delayed scales.
std::vector<GemmDecision> RewriteProducts(
    const std::vector<std::shared_ptr<Graph>>& graphs, Fp8Spec spec,
    std::unique_ptr<Graph> file);

}  // namespace onnx_fp8
