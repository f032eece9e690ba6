// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace onnx_fp8 {

// Whether q, k and v of one of our Attention ops or their gradients are one
// operand (graph/schemas/attention.cc).
bool IsPacked(const Node& node);

// Sizes of one of our Attention ops or their gradients, with the names of
// graph/schemas/attention.cc.
struct AttentionShape {
  int64_t b, t, s, heads, groups, d, e;
};

// nullopt: shapes are not known or do not fit. REQUIRES: `node` is such an op.
std::optional<AttentionShape> ShapeOfAttention(const Node& node);

}  // namespace onnx_fp8
