// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {

// The segments of one batch: row i sees column j if their numbers are equal.
// Without numbers all see all.
class Segments {
 public:
  Segments() = default;
  // One number for each row, which outlive this.
  explicit Segments(const int32_t* numbers) : numbers_(numbers) {}

  // False only if none of m rows from `row` on sees any of n columns from
  // `column` on. Numbers that grow from row to row give the exact answer.
  bool MayMeet(int64_t row, int64_t m, int64_t column, int64_t n) const {
    if (!numbers_) return true;
    Range rows = RangeOf(row, m), columns = RangeOf(column, n);
    return rows.least <= columns.most && columns.least <= rows.most;
  }

  // Sets an element of x to `hidden` where row or column `own` and one of the n
  // columns or rows from `first` on do not see each other.
  template <typename E>
  void Hide(E* x, int64_t own, int64_t first, int64_t n, E hidden) const {
    if (!numbers_) return;
    const int32_t number = numbers_[own], *others = numbers_ + first;
    OnBestIsa([=] {
      for (int64_t j = 0; j < n; ++j) {
        if (others[j] != number) x[j] = hidden;
      }
    });
  }

 private:
  struct Range {
    int32_t least, most;
  };

  Range RangeOf(int64_t first, int64_t n) const {
    auto [least, most] =
        std::minmax_element(numbers_ + first, numbers_ + first + n);
    return {*least, *most};
  }

  const int32_t* numbers_ = nullptr;
};

}  // namespace onnx_fp8
