// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <limits>
#include <vector>

namespace onnx_fp8 {

// A value in memory; after its last reader the memory is free for others.
struct Occupant {
  int writer;  // step; -1: there from the start
  size_t bytes;
  std::vector<int> readers;  // steps, in order
};

// Not in the arena: do not move this step.
inline constexpr size_t kElsewhere = std::numeric_limits<size_t>::max();

// The order of steps 0 … n-1, in which a step moves forward if it is the last
// to keep a value alive and its results take less memory than that value.
// Example: a backward GEMM wants an activation along another axis than the
// forward did, and its FP8 copy is made when the forward is done with the
// activation, not when the GEMM comes. No step moves before a writer of its
// operands. `results`: bytes of each step's results.
std::vector<int> OrderThatFreesEarly(const std::vector<Occupant>& occupants,
                                     const std::vector<size_t>& results);

}  // namespace onnx_fp8
