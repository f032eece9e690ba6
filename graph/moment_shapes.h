// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/moment_codes.h"
#include "onnx_fp8/shape.h"

namespace onnx_fp8 {

// The shape of the scales of a tensor's codes. A size that is not known stays
// so. REQUIRES: an axis.
inline Shape MomentScaleShape(Shape shape) {
  int64_t& columns = shape.back();
  if (columns >= 0) columns = MomentBlocks{1, columns}.per_row();
  return shape;
}

// The blocks of a tensor. REQUIRES: an axis; all sizes are known.
inline MomentBlocks MomentBlocksOf(const Shape& shape) {
  MomentBlocks blocks{1, shape.back()};
  for (size_t i = 0; i + 1 < shape.size(); ++i) blocks.rows *= shape[i];
  return blocks;
}

}  // namespace onnx_fp8
