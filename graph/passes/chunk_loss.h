// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace onnx_fp8 {

// Logits that another node reads or the graph returns.
enum class LogitsElsewhere {
  kStayWhole,  // nothing is cut
  kJoined,     // they are made of the chunks: memory is not saved
};

// Cuts the last layer and the cross entropy behind it into chunks of rows, so
// that the logits of a large vocabulary are never all in memory: logits, loss,
// the logits' gradient, dgrad and wgrad of one chunk are computed before the
// next chunk begins. Each chunk is a layer and a loss of its own:
// - the loss is the mean of the chunks' losses, weighted by counted labels;
// - gradients of the layer's input are joined, and its weight's added up;
// - dynamic scales of activations and gradients belong to a chunk; amaxes of
//   the chunks are joined by Max, so scales with a state stay the same.
// The chunks stand where the loss stood, so nodes behind it stay behind it.
// Only logits of more than `bytes` are cut, and only if chunks take less memory
// than the whole. A chunk has about `bytes` of logits; its number of rows is a
// multiple of 128 and at least 256. REQUIRES:
// nodes in topological order; FP8 is rewritten; Transposes are folded.
void ChunkLoss(Graph& graph, int64_t bytes,
               LogitsElsewhere elsewhere = LogitsElsewhere::kStayWhole);

}  // namespace onnx_fp8
