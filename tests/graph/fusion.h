// SPDX-License-Identifier: Apache-2.0
//
// Helpers for the tests of passes that fuse ops. Graphs are text, see parse.h.
#pragma once

#include <string>

#include "graph/graph.h"
#include "onnx_fp8/tensor.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {

using FusionPass = void (*)(Graph&);

// The graph after the pass, verified, as text.
std::string AfterPass(FusionPass pass, const std::string& text);

// The first output of the graph after `pass` (null: no pass). The feeds are the
// same random numbers in both cases.
Tensor ResultOf(FusionPass pass, const std::string& text);

// Expects that the pass changes nothing except dead code.
void ExpectStays(FusionPass pass, const std::string& text);

// Expects that the pass changes the first output by at most `bound`.
void ExpectSameValues(FusionPass pass, const std::string& text, double bound);

}  // namespace onnx_fp8
