// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// The oldest opset of the ONNX domain that import understands, and the newest
// of the pinned ONNX. After import all nodes have the meaning of the newest.
inline constexpr int kOldestOpset = 7;
inline constexpr int kNormalOpset = 28;

// A note in the metadata of a node that was written for another opset than its
// graph's. Inlined functions leave such notes (inline_functions.cc).
inline constexpr char kOpsetNote[] = "onnx_fp8.opset";

// The opset in such a note. Errors: no such number; `where` begins the message.
int ParseOpsetNote(const std::string& text, const std::string& where);

// Edits nodes in place so that each means the same at opset `to`. Keeps names
// and metadata, except opset notes. Goes into subgraphs. Nodes that already are
// of that opset stay. There are two tables: attributes that became operands,
// and other changes. REQUIRES: `to` is at least 19 if a node is of an opset
// below 13, because the newer form of such a node may use ops that came later.
// Errors: an opset outside the range, a use that has no newer form.
void Upgrade(Graph& graph, int to = kNormalOpset);

}  // namespace onnx_fp8
