// SPDX-License-Identifier: Apache-2.0
//
// Shape inference that several ops share.
#pragma once

#include "graph/graph.h"

namespace onnx_fp8 {

// `to` has the dtype and the shape of `from`.
inline void SameAs(const Value* from, Value* to) {
  to->dtype = from->dtype;
  to->shape = from->shape;
}

}  // namespace onnx_fp8
