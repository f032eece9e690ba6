// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/builder.h"

namespace onnx_fp8 {

// The places in a list of rows to which `indices` (…, k) point, in a tensor
// whose first k axes, of `sizes`, are the rows: (…). Negative indices count
// from the end of their own axis.
Value* FlatRows(Builder& b, Value* indices, const Shape& sizes);

}  // namespace onnx_fp8
