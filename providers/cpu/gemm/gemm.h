// SPDX-License-Identifier: Apache-2.0
//
// All matrix products of the CPU provider. Operands of every format and
// orientation are packed, and decoded, a block at a time (panels.h). One loop
// per instruction set multiplies the packed blocks (kernels.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// A row-major matrix in memory; `ld` elements lie between the starts of two
// rows. With `transposed` the product reads its transpose. dtype: kFloat,
// kE4M3, kE5M2, kBFloat16, kFloat16, or kDouble for both operands.
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::kFloat;
  int64_t ld = 0;
  bool transposed = false;
};

// c (M,N) = scale · op(a) (M,K) · op(b) (K,N)  [+ bias (N)]
//
// With `accumulate`, which needs scale 1 and no bias: c += op(a) · op(b).
// With `add` the finished product is rounded to float, and then added to c,
// which must be float (or double); `accumulate` must be off. The kernels add a
// product with k <= kAddDepth before they write it. A product with a large k is
// first written to memory of its own. Without `add` and `accumulate` c is not
// read.
//
// Accumulates in fp32 (in double if the operands are double). `scale` and
// `bias` are applied to the finished sum: round(round(sum · scale) + bias).
//
// row_scale and column_scale are given both or not at all. They need scale 1,
// floats and no `accumulate`. s(m,n) = round(row_scale[m] · column_scale[n])
// then replaces scale. With scale_depth, which is 32, 64, 128 or 256, they hold
// M and N such scales for every scale_depth of K, g = 0, 1, …: then c is the
// sum over g, in order, of round(sum of g · s(g,m,n)), and bias is added last.
//
// `c` and `bias` are double if the operands are, else float. With c_dtype
// kBFloat16 or kFloat16 the finished floats are rounded to c; then there is no
// `accumulate`. K = 0 is an empty sum. The bits of a result depend only on its
// row of a, its column of b and the kernel: not on the number of threads, M or
// N. With the kernels for floats (FloatKernels), small formats give the same
// bits as their decoded values; "avx512bf16" gives the bits of values that are
// swapped in pairs along K. Errors: a size beyond 2^31 - 1, another dtype, out
// of memory.
struct GemmProblem {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  GemmOperand a;
  GemmOperand b;
  float scale = 1.0f;
  const float* row_scale = nullptr;
  const float* column_scale = nullptr;
  int64_t scale_depth = 0;
  const void* bias = nullptr;
  bool accumulate = false;
  bool add = false;
  // With Accumulation::kHopper only: sums are never promoted.
  bool fast_accum = false;
  void* c = nullptr;
  DType c_dtype = DType::kFloat;  // ignored if the operands are double
  int64_t ldc = 0;                // 0: n
};

inline constexpr int64_t kAddDepth = 256;

void Gemm(const GemmProblem& problem);

// The places of the matrices of one product in a batch: elements from the
// problem's data pointers.
struct GemmOffsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

// Computes the same product at each place of `batch`. Many small products run
// side by side, large ones one after the other. REQUIRES: the results do not
// overlap.
void BatchedGemm(const GemmProblem& problem,
                 std::span<const GemmOffsets> batch);

// How the products of two 8-bit floats are summed: in fp32, or as in Hopper's
// tensor cores (hopper.h). Holds from the call on, for all products; call it
// while nothing is computed.
enum class Accumulation { kFloat, kHopper };
void SetAccumulation(Accumulation accumulation);
Accumulation ActiveAccumulation();

// The kernels that compute products of floats, and of 8-bit floats, e.g.
// "packed avx512, 8-bit avx512bf16".
std::string GemmBackend();

}  // namespace onnx_fp8
