// SPDX-License-Identifier: Apache-2.0
//
// Shape inference that several ops share.
#pragma once

#include "base/check.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// `to` has the dtype and the shape of `from`.
inline void SameAs(const Value* from, Value* to) {
  to->dtype = from->dtype;
  to->shape = from->shape;
}

// Errors: another number of operands or results, or one that is omitted.
inline void CheckArity(const Node& node, size_t inputs, size_t outputs) {
  bool fits =
      node.inputs().size() == inputs && node.outputs().size() == outputs;
  for (const auto& values : {node.inputs(), node.outputs()}) {
    for (const Value* value : values) fits = fits && value != nullptr;
  }
  Check(fits, "[", node.Where(), "] expected ", inputs, " inputs and ", outputs,
        " outputs, got ", node.inputs().size(), " and ", node.outputs().size());
}

}  // namespace onnx_fp8
