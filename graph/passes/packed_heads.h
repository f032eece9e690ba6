// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/strided_view.h"

namespace onnx_fp8 {

// The operand of AttentionPacked (graph/schemas/attention.cc): `root` as
// `shape`, and the op's attribute `perm`.
struct PackedHeads {
  Value* root;
  Shape shape;
  std::vector<int64_t> perm;
};

// q (B,H,T,D), k (B,G,T,D) and v (B,G,T,D) as the parts of one value that holds
// nothing else, as a linear layer for all three leaves them; nullopt: they are
// no such parts. REQUIRES: concrete shapes of four axes.
std::optional<PackedHeads> FindPackedHeads(StridedViews& views, Value* q,
                                           Value* k, Value* v);

}  // namespace onnx_fp8
