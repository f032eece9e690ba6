// SPDX-License-Identifier: Apache-2.0
//
// The columns of a convolution (im2col): row c · taps + t holds the elements of
// channel c that tap t of the window reads, by output position.
#pragma once

#include <cstdint>
#include <vector>

#include "providers/ops/window.h"

namespace onnx_fp8 {

// The output positions for which each tap lies inside the input, by axis; found
// once for all columns of a window.
class TapRanges {
 public:
  explicit TapRanges(const Window& w);

  TapRange Lines(int64_t kh) const { return lines_[static_cast<size_t>(kh)]; }
  TapRange Columns(int64_t kw) const {
    return columns_[static_cast<size_t>(kw)];
  }

 private:
  std::vector<TapRange> lines_, columns_;
};

// Rows first … last of the columns of x (channels, in), at the positions begin
// … end; `ld` elements from row to row. `ranges`: the tap ranges of w. T: float
// or double.
template <typename T>
void ToColumns(const Window& w, const TapRanges& ranges, const T* x,
               int64_t first, int64_t last, int64_t begin, int64_t end,
               int64_t ld, T* columns);

// The adjoint of ToColumns: adds each element of all columns to the element of
// x (channels, in) that it was read from. A row has end - begin elements, and
// the next row follows it directly. Channels run in parallel.
template <typename T>
void AddColumns(const Window& w, const TapRanges& ranges, const T* columns,
                int64_t channels, int64_t begin, int64_t end, T* x);

}  // namespace onnx_fp8
