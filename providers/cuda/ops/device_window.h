// SPDX-License-Identifier: Apache-2.0
//
// The window of convolutions and pools, as kernels read it.
#pragma once

#include <cstdint>

#include "base/check.h"
#include "providers/cuda/core/device.h"
#include "providers/ops/window.h"

namespace onnx_fp8::cuda {

// As Window, in 32 bits: sums of four of its numbers, and products of a place
// and its stride or of a tap and its dilation, do not overflow.
struct DeviceWindow {
  int in[3], kernel[3], out[3], stride[3], dilation[3], pad[3], pad_end[3];
  int64_t in_plane, out_plane, taps;  // products of in, out and kernel
};

// Errors: a size, a pad or a reach of 2^29 elements or more.
inline DeviceWindow OnDevice(const KernelContext& ctx, const Window& w) {
  constexpr int64_t kMost = int64_t{1} << 29;
  DeviceWindow d;
  for (size_t a = 0; a < 3; ++a) {
    int64_t reach = (w.kernel[a] - 1) * w.dilation[a];
    int64_t last = (w.out[a] - 1) * w.stride[a];
    Check(w.in[a] < kMost && reach < kMost && last < kMost &&
              w.pad[a] < kMost && -w.pad[a] < kMost && w.pad_end[a] < kMost &&
              -w.pad_end[a] < kMost,
          "[", ctx.Where(),
          "] expected sizes, pads and windows below 2^29 elements, got more");
    d.in[a] = static_cast<int>(w.in[a]);
    d.kernel[a] = static_cast<int>(w.kernel[a]);
    d.out[a] = static_cast<int>(w.out[a]);
    d.stride[a] = static_cast<int>(w.stride[a]);
    // One tap has no dilation.
    d.dilation[a] = reach > 0 ? static_cast<int>(w.dilation[a]) : 1;
    d.pad[a] = static_cast<int>(w.pad[a]);
    d.pad_end[a] = static_cast<int>(w.pad_end[a]);
  }
  d.in_plane = Window::Product(w.in);
  d.out_plane = Window::Product(w.out);
  d.taps = Window::Product(w.kernel);
  return d;
}

// The place of an element of a plane of those sizes.
__device__ inline void PlaceIn(const int (&sizes)[3], int64_t element,
                               int (&place)[3]) {
  place[2] = static_cast<int>(element % sizes[2]);
  element /= sizes[2];
  place[1] = static_cast<int>(element % sizes[1]);
  place[0] = static_cast<int>(element / sizes[1]);
}

}  // namespace onnx_fp8::cuda
