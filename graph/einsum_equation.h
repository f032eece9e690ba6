// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace onnx_fp8 {

// The inputs' terms of Einsum's equation. ONNX's grammar has one term per
// input, of letters and at most one "...", then perhaps "->" and the output's
// term. Each letter of the output's term occurs before, and only once in it.
// Spaces are ignored. Errors: another text; `where` names the node.
std::vector<std::string> EquationTerms(const std::string& equation,
                                       size_t inputs, const std::string& where);

}  // namespace onnx_fp8
