// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// softmax(scale · q kᵀ + mask) v, as exporters write it, becomes one of our
// Attention ops (graph/schemas/attention.cc). Scalar factors may be at the
// scores, q or k. Masks by Add or Where must not depend on anything that is
// trained or differentiated; a constant lower triangle becomes `causal`, unless
// other masks may leave its rows without a score. A Where of -inf that compares
// the segment of row and column becomes AttentionSegments, unless positions are
// relative. Heads of k and v may be
// repeated for several heads of q. If other nodes read a value in between, or a
// Dropout follows the probabilities, nothing is fused. Results differ by the
// rounding of sums. REQUIRES: concrete shapes.
//
// If q, k and v are the parts of one value that holds nothing else and the
// caller allows it, the op is AttentionPacked: neither they nor their gradients
// are copied.
void FuseAttention(Graph& graph, bool may_pack);

}  // namespace onnx_fp8
