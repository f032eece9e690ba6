// SPDX-License-Identifier: Apache-2.0
//
// The sliding window of convolutions and pools.
#pragma once

#include <array>
#include <cstdint>

#include "providers/kernel.h"

namespace onnx_fp8 {

// Three spatial axes, outermost first; if the tensors have fewer, the first
// ones have size 1. On each axis, tap k of output position o reads input
// position o · stride + k · dilation - pad, which may lie outside.
struct Window {
  using Axes = std::array<int64_t, 3>;
  int64_t rank = 0;  // spatial axes of the tensors, 1 to 3
  Axes in = {1, 1, 1};
  Axes kernel = {1, 1, 1};
  Axes out = {1, 1, 1};
  Axes stride = {1, 1, 1};
  Axes dilation = {1, 1, 1};
  Axes pad = {0, 0, 0};      // before the first element
  Axes pad_end = {0, 0, 0};  // behind the last one

  static int64_t Product(const Axes& a) { return a[0] * a[1] * a[2]; }
  // {n, channels, sizes…}.
  Shape ShapeOf(int64_t n, int64_t channels, const Axes& sizes) const;
};

// Sizes of the kernel of a Conv or ConvTranspose node, read from the weight,
// operand 1. Errors: x and the weight differ in rank or dtype; another
// kernel_shape.
std::vector<int64_t> KernelOf(const KernelContext& ctx);

// The attribute group. Errors: it does not divide that number of channels.
int64_t GroupOf(const KernelContext& ctx, int64_t divides);

// The window of a Conv or pool node over x (N,C,spatial…): strides, dilations,
// pads, auto_pad and ceil_mode of the node. Errors: attributes that do not fit,
// an input smaller than the window.
Window WindowOver(const KernelContext& ctx, const Shape& x,
                  const std::vector<int64_t>& kernel);

// The window of the convolution whose adjoint the ConvTranspose node computes:
// `out` is the spatial shape of x (N,C,spatial…), `in` the result's.
Window TransposedWindow(const KernelContext& ctx, const Shape& x,
                        const std::vector<int64_t>& kernel);

// The first and last + 1 output position of one axis for which tap k lies
// inside the input.
struct TapRange {
  int64_t begin, end;
};
TapRange InsideRange(const Window& w, size_t axis, int64_t k);

}  // namespace onnx_fp8
