// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "graph/builder.h"

namespace onnx_fp8 {

// x with `more` rows of zeros at the end of its first axis; x itself for 0.
inline Value* WithZeroRows(Builder& b, Value* x, int64_t more) {
  if (more == 0) return x;
  std::vector<int64_t> pads(2 * x->shape->size(), 0);
  pads[x->shape->size()] = more;
  return b.Op("Pad", {x, b.Ints(pads)});
}

}  // namespace onnx_fp8
