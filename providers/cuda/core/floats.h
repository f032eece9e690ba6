// SPDX-License-Identifier: Apache-2.0
//
// Operands and results whose floats may be kept in 16 bits, as a kernel gets
// them. load_store.h reads and writes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "onnx_fp8/tensor.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {

enum class Storage : uint8_t { kFloat, kBFloat16, kFloat16 };

// Errors: not a float of 32 or 16 bits.
inline Storage StorageOf(const KernelContext& ctx, DType dtype) {
  switch (dtype) {
    case DType::kFloat:
      return Storage::kFloat;
    case DType::kBFloat16:
      return Storage::kBFloat16;
    case DType::kFloat16:
      return Storage::kFloat16;
    default:
      Fail("[", ctx.Where(), "] expected float, got ", Name(dtype));
  }
}

inline DType StorageDType(Storage storage) {
  return storage == Storage::kFloat      ? DType::kFloat
         : storage == Storage::kBFloat16 ? DType::kBFloat16
                                         : DType::kFloat16;
}

struct FloatsIn {
  const void* data = nullptr;
  Storage storage = Storage::kFloat;
};

struct FloatsOut {
  void* data = nullptr;  // null: nobody reads the result
  Storage storage = Storage::kFloat;
};

inline FloatsIn AsOperand(const FloatsOut& y) { return {y.data, y.storage}; }

// Whether all tensors that are present are kept so.
inline bool AreStoredAs(Storage storage, std::initializer_list<FloatsIn> all) {
  return std::ranges::all_of(all, [storage](const FloatsIn& x) {
    return !x.data || x.storage == storage;
  });
}

inline bool AreBFloat16(std::initializer_list<FloatsIn> all) {
  return AreStoredAs(Storage::kBFloat16, all);
}

// The same for an array of FloatsIn or FloatsOut.
template <typename T, size_t kCount>
bool AreBFloat16(const T (&all)[kCount]) {
  return std::ranges::all_of(all, [](const T& x) {
    return !x.data || x.storage == Storage::kBFloat16;
  });
}

// Operand i. Errors: StorageOf's; the node leaves it out.
inline FloatsIn FloatsOf(const KernelContext& ctx, size_t i) {
  const Tensor& x = Operand(ctx, i);
  return {x.raw(), StorageOf(ctx, x.dtype())};
}

// Result i, of that shape. Errors: StorageOf's; the plan knew another shape.
inline FloatsOut FloatsTo(KernelContext& ctx, size_t i, const Shape& shape) {
  if (!ctx.HasOut(i)) return {};
  DType dtype = ctx.NarrowOut(i);
  if (dtype == DType::kUndefined) dtype = DType::kFloat;
  Tensor& y = ctx.Out(i, dtype, shape);
  return {y.raw(), StorageOf(ctx, dtype)};
}

}  // namespace onnx_fp8::cuda
