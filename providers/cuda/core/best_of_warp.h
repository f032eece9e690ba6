// SPDX-License-Identifier: Apache-2.0
//
// The first element of a line in an order, found by the lanes of a warp.
#pragma once

#include <cstdint>

#include "providers/cuda/core/device.h"

namespace onnx_fp8::cuda {

// An element and its place; place -1: none.
template <typename T>
struct Placed {
  T value;
  int64_t place;
};

// Whether a comes before b in ascending order, NaN last.
template <typename T>
__device__ bool Ascends(T a, T b) {
  return a < b || (b != b && a == a);
}

// The order of TopK and of the Arg ops: the largest (or smallest) element comes
// first; of equal ones the one with the lower (or higher) place.
struct Order {
  bool largest;    // NaN is the largest
  bool last;       // of equal ones
  bool nan_first;  // whatever `largest` says

  template <typename T>
  __device__ bool Before(const Placed<T>& a, const Placed<T>& b) const {
    if (a.place < 0 || b.place < 0) return b.place < 0 && a.place >= 0;
    bool descend =
        largest || (nan_first && (a.value != a.value || b.value != b.value));
    bool ab = descend ? Ascends(b.value, a.value) : Ascends(a.value, b.value);
    bool ba = descend ? Ascends(a.value, b.value) : Ascends(b.value, a.value);
    if (ab || ba) return ab;
    return last ? a.place > b.place : a.place < b.place;
  }
};

// The first one of all lanes' elements. All lanes call it.
template <typename T>
__device__ Placed<T> BestOfWarp(const Order& order, Placed<T> own) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    Placed<T> other = {__shfl_xor_sync(kAll, own.value, lanes),
                       static_cast<int64_t>(__shfl_xor_sync(
                           kAll, static_cast<long long>(own.place), lanes))};
    if (order.Before(other, own)) own = other;
  }
  return own;
}

}  // namespace onnx_fp8::cuda
