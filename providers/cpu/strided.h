// SPDX-License-Identifier: Apache-2.0
//
// The base of all data movement: one loop nest over two sets of strides.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "onnx_fp8/shape.h"
#include "providers/ops/for_width.h"

namespace onnx_fp8 {

// Walks the indices of `shape` in row-major order and keeps N offsets, the
// products of the index with N sets of strides. The shape and the strides must
// outlive it.
template <size_t N>
class Odometer {
 public:
  // Starts at index number `first`. REQUIRES: no size is 0.
  Odometer(std::span<const int64_t> shape,
           std::array<std::span<const int64_t>, N> strides, int64_t first = 0)
      : shape_(shape), strides_(strides), index_(shape.size()) {
    for (size_t d = shape.size(); d-- > 0;) {
      index_[d] = first % shape[d];
      first /= shape[d];
      for (size_t k = 0; k < N; ++k) offset_[k] += index_[d] * strides[k][d];
    }
  }

  int64_t offset(size_t k) const { return offset_[k]; }
  std::span<const int64_t> index() const { return index_; }

  void Next() {
    for (size_t d = shape_.size(); d-- > 0;) {
      for (size_t k = 0; k < N; ++k) offset_[k] += strides_[k][d];
      if (++index_[d] < shape_[d]) return;
      for (size_t k = 0; k < N; ++k) offset_[k] -= strides_[k][d] * shape_[d];
      index_[d] = 0;
    }
  }

 private:
  std::span<const int64_t> shape_;
  std::array<std::span<const int64_t>, N> strides_;
  std::vector<int64_t> index_;
  std::array<int64_t, N> offset_ = {};
};

// dst[Σ i·dst_strides] = src[Σ i·src_strides] for every index i of `shape`, on
// all threads. Strides count elements of `width` bytes (1, 2, 4, 8). Strides of
// src may be 0 or negative; strides of dst must give each index its own
// element. src and dst must not overlap.
void CopyStrided(std::span<const int64_t> shape, size_t width, const void* src,
                 std::span<const int64_t> src_strides, void* dst,
                 std::span<const int64_t> dst_strides);

// y[i] = x[Σ tables[d][i[d]]] for every index i of the dense result, or `fill`
// if one of the tables holds -1. There is one table per axis, as long as the
// axis. Rank 1 at least, no axis of size 0. `fill` points to one element.
void CopyMapped(const std::vector<std::vector<int64_t>>& tables, size_t width,
                const void* x, const void* fill, void* y);

// Sets `count` elements of `width` bytes to the element at `value`.
void FillElements(void* dst, int64_t count, size_t width, const void* value);

}  // namespace onnx_fp8
