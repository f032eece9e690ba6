// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "onnx_fp8/tensor.h"
#include "providers/cuda/core/result.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {

// How the tensors of a norm are kept, if the compiler knows. Training in
// bfloat16 has a residual stream of bfloat16 or of floats; branches, which read
// norms and are added to the stream, are of bfloat16.
enum class Kinds { kAny, kBFloat16, kFloatStream };

inline Kinds KindsOf(std::initializer_list<FloatsIn> stream,
                     std::initializer_list<FloatsIn> branch) {
  if (!AreBFloat16(branch)) return Kinds::kAny;
  if (AreBFloat16(stream)) return Kinds::kBFloat16;
  return AreStoredAs(Storage::kFloat, stream) ? Kinds::kFloatStream
                                              : Kinds::kAny;
}

// A tensor of the stream, or of a branch. T: FloatsIn or FloatsOut.
template <Kinds kKinds, typename T>
__device__ T OfStream(T x) {
  if (kKinds == Kinds::kBFloat16) x.storage = Storage::kBFloat16;
  if (kKinds == Kinds::kFloatStream) x.storage = Storage::kFloat;
  return x;
}
template <Kinds kKinds, typename T>
__device__ T OfBranch(T x) {
  if (kKinds != Kinds::kAny) x.storage = Storage::kBFloat16;
  return x;
}

// x as rows of the normalized axes, as in the CPU's norm.cc.
struct NormRows {
  NormRows(const KernelContext& ctx, const Tensor& x) {
    int64_t axis = AxisIn(ctx, ctx.Int("axis", -1), x.rank());
    Check(x.rank() > 0, "[", ctx.Where(), "] expected a tensor, got a scalar");
    AxisView v = ViewAlong(x.shape(), axis, x.rank() - axis);
    count = v.outer;
    n = v.n;
    tail = Shape(x.shape().begin() + axis, x.shape().end());
    statistics = x.shape();
    std::fill(statistics.begin() + axis, statistics.end(), 1);
  }

  int64_t count, n;
  Shape tail;        // of one row
  Shape statistics;  // of one number per row
};

// The rows of a norm, and the rows of its codes, which may have zeros around
// them.
struct NormSizes {
  int64_t rows, n, to_rows, to_n;
};

// Whether rows consist of vectors, and their codes have no zeros.
inline bool IsWhole(const NormSizes& s) {
  return s.n % 4 == 0 && s.to_n == s.n && s.to_rows == s.rows;
}

// Errors: there are zeros, but the norm and the matrix differ in their rows.
inline NormSizes SizesOf(const KernelContext& ctx, const NormRows& rows,
                         const Result& r) {
  const MatrixSizes& m = r.sizes;
  Check(!Pads(m) || rows.n == m.columns, "[", ctx.Where(),
        "] expected a norm of rows of ", m.columns,
        " elements, whose codes are padded, got ", rows.n);
  if (!Pads(m)) return {rows.count, rows.n, rows.count, rows.n};
  return {rows.count, rows.n, m.to_rows, m.to_columns};
}

}  // namespace onnx_fp8::cuda
