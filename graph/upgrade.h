// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// The oldest opset of the ONNX domain that import understands, and the one
// whose meaning all nodes have afterwards (the newest of the pinned ONNX).
inline constexpr int kOldestOpset = 7;
inline constexpr int kNormalOpset = 25;

// A note in the metadata of a node that was written for another opset than its
// graph's: inlined functions have one each (inline_functions.cc).
inline constexpr char kOpsetNote[] = "onnx_fp8.opset";

// The opset in such a note. Errors: text that is none; `where` begins them.
int ParseOpsetNote(const std::string& text, const std::string& where);

// Edits nodes in place so that each means the same at opset `to`; keeps names
// and metadata but for opset notes; goes into subgraphs. Nodes that are there
// already stay as they are. Two tables: attributes that became operands, and
// other changes. REQUIRES: `to` is at least 19 if a node is of an opset below
// 13, since a newer form of these may take ops that came later. Errors: an
// opset outside the range, a use that has no newer form.
void Upgrade(Graph& graph, int to = kNormalOpset);

}  // namespace onnx_fp8
