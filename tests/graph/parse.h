// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// Reads the text that Print writes (graph/print.h), without subgraphs,
// sequences and tensor attributes; the heading may be missing. Any initializer
// may have values; without them it is zero. Errors: the line that can't be
// read.
std::unique_ptr<Graph> ParseGraph(const std::string& text);

}  // namespace onnx_fp8
