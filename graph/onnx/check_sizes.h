// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// No machine holds a larger tensor. Sums of such sizes, and their products with
// the bounds that CheckNodes sets to attributes, still fit 64 bits.
inline constexpr int64_t kMaxElements = int64_t{1} << 42;

// NumPy's limit.
inline constexpr int64_t kMaxRank = 64;

// True if a tensor of this shape may exist; axes of unknown size count as 1.
bool Plausible(const Shape& shape);

// Errors: a value is too large for memory by its known axes; the message names
// the node.
void CheckSizes(const Node& node, const std::vector<Value*>& values);

}  // namespace onnx_fp8
