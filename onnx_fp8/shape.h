// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace onnx_fp8 {

// Axis sizes, outermost first; row-major, always contiguous. A size of -1 means
// "not known yet" and appears only in graphs that are not specialized.
using Shape = std::vector<int64_t>;

// Product of the sizes; 1 for a scalar. Errors: overflow of int64.
int64_t NumElements(std::span<const int64_t> shape);

// True if no size is -1.
bool IsConcrete(std::span<const int64_t> shape);

// Row-major strides in elements.
std::vector<int64_t> Strides(std::span<const int64_t> shape);

// NumPy's broadcasting. Errors: sizes that do not fit; `where` names the node.
Shape BroadcastShapes(const Shape& a, const Shape& b, const std::string& where);

// Maps an axis in -rank … rank-1 to 0 … rank-1. Errors: outside; `where` names
// the node.
int64_t NormalizeAxis(int64_t axis, int64_t rank, const std::string& where);

// "[2,3]"; unknown sizes print as "?".
std::string ToString(std::span<const int64_t> shape);

}  // namespace onnx_fp8
