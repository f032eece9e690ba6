// SPDX-License-Identifier: Apache-2.0
//
// Operands and results whose floats may be kept in 16 bits: a kernel reads and
// writes them a block at a time, and computes in float.
#pragma once

#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/tensor.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {

// The dtype in which a kernel computes with x.
inline DType ComputedAs(const Tensor& x) {
  return IsHalf(x.dtype()) ? DType::kFloat : x.dtype();
}

// The same of two operands. Errors: they differ.
inline DType ComputedAs(const KernelContext& ctx, const Tensor& a,
                        const Tensor& b) {
  Check(ComputedAs(a) == ComputedAs(b), "[", ctx.Where(),
        "] expected operands of one dtype, got ", Name(a.dtype()), " and ",
        Name(b.dtype()));
  return ComputedAs(a);
}

// Traits of a kernel whose result 0 may take the place of any of its first
// `operands` operands. It measures that result, and all of them may be kept in
// 16 bits.
inline KernelTraits StoredTraits(size_t operands) {
  KernelTraits traits{.measures = {0}, .narrow_out = {0}};
  for (size_t i = 0; i < operands; ++i) {
    traits.in_place.emplace_back(static_cast<int>(i), 0);
    traits.narrow_in.push_back(i);
  }
  return traits;
}

// Room for `rows` rows of n elements, for operands that are widened and results
// that are rounded. The next call on this thread gives the same memory.
template <typename T>
T* WideRows(int64_t rows, int64_t n) {
  thread_local std::vector<T> wide;
  wide.resize(std::max(wide.size(), static_cast<size_t>(rows * n)));
  return wide.data();
}

// Elements of an operand, as T: float, for operands kept in 16 bits too, or
// double.
template <typename T>
class StoredIn {
 public:
  StoredIn() = default;
  explicit StoredIn(const Tensor& x)
      : data_(x.raw()), dtype_(x.dtype()), narrow_(IsHalf(dtype_)) {}

  // n elements from `at` on: in the operand itself, or widened into `buffer`.
  const T* Read(int64_t at, int64_t n, T* buffer) const {
    if constexpr (std::is_same_v<T, float>) {
      return ReadFloats(dtype_, data_, at, n, buffer);
    } else {
      return static_cast<const T*>(data_) + at;
    }
  }

  bool narrow() const { return narrow_; }

 private:
  const void* data_ = nullptr;
  DType dtype_ = DType::kUndefined;
  bool narrow_ = false;
};

// Elements of a result.
template <typename T>
class StoredOut {
 public:
  StoredOut() = default;
  explicit StoredOut(Tensor& y)
      : data_(y.raw()), dtype_(y.dtype()), narrow_(IsHalf(dtype_)) {}

  // Where to write the elements from `at` on: in the result itself, or in
  // `buffer`. Write() follows.
  T* At(int64_t at, T* buffer) const {
    return narrow_ ? buffer : static_cast<T*>(data_) + at;
  }

  // Rounds n elements in `buffer` into the result, if it is kept in 16 bits.
  void Write(int64_t at, int64_t n, const T* buffer) const {
    if constexpr (std::is_same_v<T, float>) {
      if (narrow_) {
        NarrowFloats(dtype_, buffer, static_cast<uint16_t*>(data_) + at, n);
      }
    }
  }

  bool narrow() const { return narrow_; }

 private:
  void* data_ = nullptr;
  DType dtype_ = DType::kUndefined;
  bool narrow_ = false;
};

// Result i of a kernel that computes in `dtype`, as the plan keeps it; memory
// of its own if nobody reads it. Errors: the plan knew another dtype or shape.
inline Tensor StoredResult(KernelContext& ctx, size_t i, DType dtype,
                           const Shape& shape) {
  DType narrow = ctx.NarrowOut(i);
  return Result(ctx, i, narrow == DType::kUndefined ? dtype : narrow, shape);
}

}  // namespace onnx_fp8
