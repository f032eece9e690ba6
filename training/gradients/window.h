// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "graph/builder.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// How the places of a small side read a large side, axis by axis: place j reads
// elements j·stride - begin + t·dilation for t in 0 … kernel-1. The large side
// is x in Conv and in the pools, and y in ConvTranspose.
struct WindowPlaces {
  std::vector<int64_t> kernel, strides, dilations;
  std::vector<int64_t> begin;
  // Zeros needed behind the large side, at most the node's own pads. Negative:
  // as many elements at the end are never read.
  std::vector<int64_t> end;
  // The node's own pads at the end.
  std::vector<int64_t> declared_end;
};

// `kernel`: sizes of the spatial axes. Shapes are (N, C, …).
WindowPlaces WindowOfConv(const Node& node, std::vector<int64_t> kernel,
                          const Shape& x, const Shape& y);
WindowPlaces WindowOfConvTranspose(const Node& node,
                                   std::vector<int64_t> kernel, const Shape& x,
                                   const Shape& y);

// Attributes of a Conv from the large side to the small one.
Attributes ConvAttributes(const WindowPlaces& w, int64_t group);
// Attributes of a ConvTranspose from the small side to the large one.
Attributes ConvTransposeAttributes(const WindowPlaces& w, int64_t group);

// The large side without the unread elements at its end.
Value* CutUnread(Builder& b, Value* large, const WindowPlaces& w);

}  // namespace onnx_fp8
