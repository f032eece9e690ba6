// SPDX-License-Identifier: Apache-2.0
//
// The operands of attention's products. E is an element: float, double, or
// KeptBFloat16 where products of bfloat16 are summed in float.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <vector>

#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/cpu/stored.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {

// Columns that are computed together; the depth of every operand of bfloat16 is
// a multiple of it, filled with zeros.
inline constexpr int64_t kLanes = 32;

// Rows that lie this many bytes apart, or a multiple of it, fall into few sets
// of the first-level cache: products had better read a copy of them.
inline constexpr int64_t kPage = 4096;

template <typename E>
inline constexpr bool kRounded = std::is_same_v<E, KeptBFloat16>;
template <typename E>
using SumOf = std::conditional_t<kRounded<E>, float, E>;

// Rows of one head, `ld` elements apart.
template <typename E>
struct HeadRows {
  E* data;
  int64_t ld;

  HeadRows From(int64_t row) const { return {data + row * ld, ld}; }
  HeadRows Right(int64_t column) const { return {data + column, ld}; }
};

template <typename E>
GemmOperand Operand(const HeadRows<E>& x, bool transposed = false) {
  using Element = std::remove_const_t<E>;
  DType dtype = DType::kBFloat16;
  if constexpr (!kRounded<Element>) dtype = DTypeOf<Element>();
  return {x.data, dtype, x.ld, transposed};
}

// Rounds rows of n elements that products read as they are in memory.
template <typename E>
void RoundRows(DType to, const HeadRows<E>& x, int64_t rows, int64_t n) {
  if constexpr (std::is_same_v<E, float>) {
    for (int64_t i = 0; i < rows && IsHalf(to); ++i) {
      RoundFloats(to, x.From(i).data, x.From(i).data, n);
    }
  }
}

// `rows` rows of n elements of x, `ld` apart, from element `at` on: x itself or
// a copy in `buffer`. Rows of bfloat16 are filled with zeros up to a multiple
// of kLanes, and there is memory for as many more rows.
template <typename E>
HeadRows<const E> ReadRows(const Tensor& x, int64_t at, int64_t rows,
                           int64_t ld, int64_t n, std::vector<E>& buffer) {
  StoredIn<SumOf<E>> from(x);
  if constexpr (!kRounded<E>) {
    bool conflict = ld * static_cast<int64_t>(sizeof(E)) % kPage == 0;
    if (!from.narrow() && !conflict) return {x.data<E>() + at, ld};
    buffer.resize(static_cast<size_t>(rows * n));
    for (int64_t i = 0; i < rows; ++i) {
      E* to = buffer.data() + i * n;
      const E* read = from.Read(at + i * ld, n, to);
      if (read != to) std::copy_n(read, n, to);
    }
    return {buffer.data(), n};
  } else {
    int64_t width = RoundUp(n, kLanes);
    buffer.resize(static_cast<size_t>(RoundUp(rows, kLanes) * width));
    for (int64_t i = 0; i < rows; ++i) {
      E* to = buffer.data() + i * width;
      if (x.dtype() == DType::kBFloat16) {
        std::memcpy(to, static_cast<const E*>(x.raw()) + at + i * ld,
                    static_cast<size_t>(n) * sizeof(E));
      } else {
        NarrowFloats(DType::kBFloat16,
                     from.Read(at + i * ld, n, WideRows<float>(1, n)), to, n);
      }
      std::fill(to + n, to + width, E{0});
    }
    return {buffer.data(), width};
  }
}

}  // namespace onnx_fp8
