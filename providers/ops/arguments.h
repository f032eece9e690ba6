// SPDX-License-Identifier: Apache-2.0
// The operands and attributes that a kernel reads, with checks, and the results
// that it fills.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "base/check.h"
#include "onnx_fp8/shape.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// ---- operands

// Operand i. Errors: the node leaves it out.
inline const Tensor& Operand(const KernelContext& ctx, size_t i) {
  Check(ctx.HasIn(i), "[", ctx.Where(), "] expected an operand ", i,
        ", got none");
  return ctx.In(i);
}

// Errors: operand i is missing, or of another dtype or shape. A float that is
// kept in 16 bits counts as float.
void CheckOperand(const KernelContext& ctx, size_t i, DType dtype,
                  const Shape& shape);

// Errors: the two differ.
void CheckSameDType(const KernelContext& ctx, const Tensor& a, const Tensor& b);

// The only element of operand i, of any numeric dtype. Errors: the operand is
// missing or has another number of elements.
double NumberIn(const KernelContext& ctx, size_t i);

// The same for integer dtypes. Errors: also another dtype.
int64_t IntIn(const KernelContext& ctx, size_t i);

// All elements of operand i. Errors: it is missing, its dtype is not int32 or
// int64, or its rank is above 1.
std::vector<int64_t> IntsIn(const KernelContext& ctx, size_t i);

// Errors: operand i is missing, or its dtype is not int32 or int64.
void CheckIndexType(const KernelContext& ctx, size_t i);

// An index into an axis of `size`, as 0 … size-1; negative indices count from
// the end. Errors: outside the axis.
inline int64_t IndexInto(const KernelContext& ctx, int64_t index,
                         int64_t size) {
  if (index < -size || index >= size) [[unlikely]] {
    Fail("[", ctx.Where(), "] expected indices in ", -size, "…", size - 1,
         ", got ", index);
  }
  return index < 0 ? index + size : index;
}

// All elements of operand i, of any rank, as indices into an axis of `size`.
// Errors: CheckIndexType's and IndexInto's.
std::vector<int64_t> IndicesIn(const KernelContext& ctx, size_t i,
                               int64_t size);

// ---- axes and sizes

// An axis in 0 … rank-1. Errors: outside, and any axis of a scalar.
inline int64_t AxisIn(const KernelContext& ctx, int64_t axis, int64_t rank) {
  return NormalizeAxis(axis, rank, ctx.Where());
}

// `axes` without negative ones. Errors: outside of the rank, named twice.
std::vector<int64_t> AxesIn(const KernelContext& ctx, std::vector<int64_t> axes,
                            int64_t rank);

// A tensor seen along axes [axis, axis+count): (outer, n, inner).
struct AxisView {
  int64_t outer, n, inner;
};

inline AxisView ViewAlong(const Shape& shape, int64_t axis, int64_t count = 1) {
  std::span<const int64_t> s(shape);
  auto a = static_cast<size_t>(axis);
  auto c = static_cast<size_t>(count);
  return {NumElements(s.first(a)), NumElements(s.subspan(a, c)),
          NumElements(s.subspan(a + c))};
}

// Errors: a negative size.
void CheckSizes(const KernelContext& ctx, const Shape& shape);

// ---- attributes

// The dtype whose number is the attribute `key`. Errors: not numeric.
DType DTypeIn(const KernelContext& ctx, const char* key, DType otherwise);

// Position in `names` of the text in attribute `key`. Errors: not among them.
size_t PlaceOfChoice(const KernelContext& ctx, const char* key,
                     const char* otherwise,
                     std::initializer_list<const char*> names);

// PlaceOfChoice as an enumerator, or a bool: E counts from 0 in the order of
// `names`.
template <typename E>
E ChoiceIn(const KernelContext& ctx, const char* key, const char* otherwise,
           std::initializer_list<const char*> names) {
  return static_cast<E>(PlaceOfChoice(ctx, key, otherwise, names));
}

// ---- results

// Result i, or memory of its own if nobody reads it. Errors: the plan knew
// another dtype or shape.
Tensor Result(KernelContext& ctx, size_t i, DType dtype, const Shape& shape);

// to = from; both may be the same memory. REQUIRES: the same size.
void CopyBytes(const Tensor& from, Tensor& to);

// Sets result i to `value`, unless nobody reads it. Errors: Result's.
void SetResult(KernelContext& ctx, size_t i, const Tensor& value);

}  // namespace onnx_fp8
