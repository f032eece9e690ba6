// SPDX-License-Identifier: Apache-2.0
//
// Checked access to a node's operands, for kernels whose operands say where to
// move data.
#pragma once

#include <cstdint>
#include <vector>

#include "onnx_fp8/check.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Operand i. Errors: the node leaves it out.
inline const Tensor& Operand(const KernelContext& c, size_t i) {
  Check(c.HasIn(i), "[", c.Where(), "] expected an operand ", i, ", got none");
  return c.In(i);
}

// All elements of operand i. Errors: it is missing, its dtype is not int32 or
// int64, or its rank is above 1.
std::vector<int64_t> IntsIn(const KernelContext& c, size_t i);

// The one element of operand i, of any integer dtype. Errors: it is missing or
// has another number of elements.
int64_t IntIn(const KernelContext& c, size_t i);

// Indices into an axis of `size`, with negative ones counted from the end.
// Errors: a dtype other than int32 and int64, an index outside the axis.
std::vector<int64_t> IndicesIn(const KernelContext& c, size_t i, int64_t size);

// An axis in 0 … rank-1. Errors: outside, and any axis of a scalar.
int64_t AxisIn(const KernelContext& c, int64_t axis, int64_t rank);

// `axes` without negative ones. Errors: outside of the rank, named twice.
std::vector<int64_t> AxesIn(const KernelContext& c, std::vector<int64_t> axes,
                            int64_t rank);

// Errors: the two differ.
void CheckSameDType(const KernelContext& c, const Tensor& a, const Tensor& b);

}  // namespace onnx_fp8
