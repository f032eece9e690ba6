// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// Path of `name`, relative to the root of the source tree.
std::string SourcePath(const std::string& name);

// The folder of ONNX's own node cases; empty if there is no Python.
std::string NodeCasesFolder();

}  // namespace onnx_fp8
