// SPDX-License-Identifier: Apache-2.0
// Which tensors of a model a session keeps as its state.
#pragma once

#include <cstdint>
#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// Sums are zero between two steps.
inline bool IsKept(const Value& value) {
  return value.role != Role::kNone && value.role != Role::kSum;
}

// A tensor of which passes read no numbers. (Small ones may be scales that are
// compared.)
bool IsLargeWeight(const Value& value);

// Whether training makes the numbers of this state, so that no checkpoint has
// NaN or Inf there. What training leaves alone may hold any.
bool MustBeFinite(const Graph& model, const std::string& name);

}  // namespace onnx_fp8
