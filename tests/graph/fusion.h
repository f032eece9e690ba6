// SPDX-License-Identifier: Apache-2.0
//
// What the tests of passes that fuse ops share. Graphs are text, see parse.h.
#pragma once

#include <string>

#include "graph/graph.h"
#include "onnx_fp8/tensor.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {

using FusionPass = void (*)(Graph&);

// The graph after the pass, verified, as text.
std::string AfterPass(FusionPass pass, const std::string& text);

// The first output of the graph, fed with the same random numbers whether
// `pass` runs before or is null.
Tensor ResultOf(FusionPass pass, const std::string& text);

// The pass leaves all but dead code as it is.
void ExpectStays(FusionPass pass, const std::string& text);

// The pass changes the first output by `bound` at most.
void ExpectSameValues(FusionPass pass, const std::string& text, double bound);

}  // namespace onnx_fp8
