// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// Reads what Print writes (graph/print.h), less subgraphs, sequences and
// tensor attributes; the heading may be left out. Any initializer may have
// values; without them it is zero. Errors: the line that can't be read.
std::unique_ptr<Graph> ParseGraph(const std::string& text);

}  // namespace onnx_fp8
