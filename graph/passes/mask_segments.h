// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/evaluator.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// Rows of tokens that hold several documents, which the input `name` tells
// apart: (B,T), one number for each document of a row.

// Adds the input, of int32, if the graph has none of that name, and returns
// whether it did. The input gets the axes of the first input of integers that
// has two. If there is none, it gets the first two axes of the first input that
// has more.
// Errors: OptionError if there is no such input, or the graph's own input of
// that name is something else.
bool AddSegmentInput(Graph& graph, const std::string& name);

// Hides the scores of other segments from each Softmax of attention by
// Where(Equal(segment of row, segment of column), scores, -infinity), which
// FuseAttention knows. Attention of ONNX is expanded before. REQUIRES: concrete
// shapes; the input. Errors: no attention; attention whose scores are not
// (B,H,T,T) or (B,T,T) with the Softmax over the last axis; attention whose
// queries and keys come from different inputs; another op that mixes rows: a
// recurrent one, linear attention, or a convolution with a window;
// RequireTokensInPlace's.
void MaskSegments(Graph& graph, const std::string& name,
                  const Evaluator& evaluator);

}  // namespace onnx_fp8
