// SPDX-License-Identifier: Apache-2.0
//
// Resize as of opset 19. Every mode is a product over the axes, so each axis
// has a table (elements and their weights). Formulas: ONNX's operator
// documentation and onnx/reference/ops/op_resize.py.
#pragma once

#include <cstdint>
#include <vector>

#include "providers/kernel.h"

namespace onnx_fp8 {

// The weighted elements that make one element of the result; none: it is the
// extrapolation value.
struct Taps {
  std::vector<int64_t> index;
  std::vector<double> weight;
};

struct ResizeTable {
  int64_t from;            // size of the axis
  bool changes;            // false: the axis stays as it is
  std::vector<Taps> taps;  // of each position in the result
};

struct ResizeLayout {
  Shape shape;                      // of the result
  bool nearest;                     // one tap of weight 1 for each position
  std::vector<ResizeTable> tables;  // for each axis
};

// The shape of a Resize node's result. Its roi, scales and sizes, inputs 1 to
// 3, lie on the host. Errors: attributes or operands that do not fit x.
Shape ResizedShape(const KernelContext& ctx);

// The layout of the node, whose result is not empty. Errors: x has no elements.
ResizeLayout ResizeLayoutOf(const KernelContext& ctx);

// For a nearest layout, by axis and position in the result: the offset of its
// element in x; -1 for the extrapolation value.
std::vector<std::vector<int64_t>> NearestTables(const ResizeLayout& layout,
                                                const Shape& x);

}  // namespace onnx_fp8
