// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace onnx_fp8 {

// The inputs' terms of Einsum's equation. By ONNX's grammar there is one per
// input, of letters and at most one "...", then perhaps "->" and the output's
// term, whose letters all occur before and once; spaces count for nothing.
// Errors: another text; `where` names the node.
std::vector<std::string> EquationTerms(const std::string& equation,
                                       size_t inputs, const std::string& where);

}  // namespace onnx_fp8
