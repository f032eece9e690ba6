// SPDX-License-Identifier: Apache-2.0
//
// The options `shape` and `value`, which name axes and inputs of a model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "graph/passes/specialize.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

// "batch=4", "seq=8" → sizes by axis name. Errors: OptionError.
std::map<std::string, int64_t> ParseShapeFlag(
    const std::vector<std::string>& words);

// The name that --shape uses for axis `i` of the input: its own, or INPUT.i
// without one.
std::string AxisName(const InputInfo& input, size_t i);

// Shapes of the graph's inputs with these axes filled in; other open axes stay
// -1. Errors: OptionError for an axis that no input has.
std::map<std::string, Shape> ResolveShapes(
    const std::vector<InputInfo>& inputs,
    const std::map<std::string, int64_t>& axes);

// "sr=16000", "causal=true" → values by name of input. Errors: OptionError.
InputValues ParseValueFlag(const std::vector<std::string>& words);

// The same values. Errors: a value without an input of one integer or bool.
InputValues ResolveValues(const std::vector<InputInfo>& inputs,
                          const InputValues& values);

}  // namespace onnx_fp8
