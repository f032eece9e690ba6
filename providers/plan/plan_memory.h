// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

#include "base/check.h"
#include "graph/graph.h"
#include "providers/plan/plan.h"

namespace onnx_fp8 {

// The memory of a value and of all views of it.
struct Memory {
  const Value* value;  // the one that is not a view
  size_t bytes;
  int writer = -1;           // step that fills it; -1: full from the start
  std::vector<int> readers;  // steps
  bool kept = false;         // read after the last step
  Place place = Place::kArena;
  size_t at = 0;
};

// `next` → `state`, as indices of memories.
struct Assignment {
  int state, next;
  int write = -1;  // the InPlaceWrite that may make it needless
};

// Errors: an unknown type, more than any machine has.
inline size_t CheckedBytes(const Value& value) {
  // Far beyond any machine; sums over all values of a graph stay in 64 bits.
  constexpr size_t kMaxBytes = size_t{1} << 47;
  Check(value.concrete() && ByteSize(value.dtype) > 0, "[value ", value.name,
        "] expected a known dtype and shape, got ", Name(value.dtype),
        value.shape ? ToString(*value.shape) : " of unknown rank");
  auto elements = static_cast<size_t>(NumElements(*value.shape));
  Check(elements < kMaxBytes / ByteSize(value.dtype), "[value ", value.name,
        "] expected a tensor that fits into memory, got shape ",
        ToString(*value.shape));
  return BytesOf(value);
}

}  // namespace onnx_fp8
