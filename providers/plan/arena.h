// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <vector>

namespace onnx_fp8 {

// Multiples at which buffers begin in an arena: a cache line of a CPU, and what
// cuBLASLt takes for granted of operands when it chooses a kernel.
inline constexpr size_t kHostAlignment = 64, kDeviceAlignment = 256;

// The size of `bytes` in an arena: rounded up to a multiple of `alignment`.
size_t Padded(size_t bytes, size_t alignment);

// A block of memory that is in use from step `start` to step `end`, both
// included. REQUIRES: start <= end.
struct Buffer {
  int start;
  int end;
  size_t bytes;
  size_t offset = 0;  // set by PlaceBuffers
};

// Gives every buffer a multiple of `alignment` as its offset, so that buffers
// in use at the same step do not overlap, and returns the bytes needed for all.
// It tries three orders of the buffers and keeps the smallest placement: by
// start, which loses little where lifetimes are nested; by size; by size times
// lifetime.
size_t PlaceBuffers(std::vector<Buffer>& buffers,
                    size_t alignment = kHostAlignment);

// The most bytes in use at any step: no placement needs less.
size_t LiveBytes(const std::vector<Buffer>& buffers,
                 size_t alignment = kHostAlignment);

}  // namespace onnx_fp8
