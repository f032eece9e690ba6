// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

#include "graph/graph.h"

namespace onnx_fp8 {

// A matrix (n,n) with one number on and below the diagonal, and one above it.
struct Triangle {
  double lower, upper;
};

// The numbers of a value that broadcasts to (…,n,n), if every matrix of it is
// such a triangle; booleans are 0 and 1. The answer comes from the nodes that
// make the value, down to its constants: a mask for long sequences is not
// folded, because it would take n · n elements.
std::optional<Triangle> TriangleIn(const Value* value, int64_t n);

}  // namespace onnx_fp8
