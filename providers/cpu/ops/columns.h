// SPDX-License-Identifier: Apache-2.0
//
// The columns of a convolution (im2col): row c · taps + t holds the elements of
// channel c that tap t of the window reads, by output position.
#pragma once

#include <cstdint>

#include "providers/window.h"

namespace onnx_fp8 {

// Rows first … last of the columns of x (channels, in), at the positions begin
// … end; `ld` elements from row to row. T: float or double.
template <typename T>
void ToColumns(const Window& w, const T* x, int64_t first, int64_t last,
               int64_t begin, int64_t end, int64_t ld, T* columns);

// The adjoint: adds all rows, without a gap between them, to x (channels, in).
// Channels in parallel.
template <typename T>
void AddColumns(const Window& w, const T* columns, int64_t channels,
                int64_t begin, int64_t end, T* x);

}  // namespace onnx_fp8
