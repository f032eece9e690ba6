// SPDX-License-Identifier: Apache-2.0
//
// The one matrix product of the CPU provider. Operands of every format and
// orientation are packed, and decoded, a block at a time (panels.h); one loop
// per instruction set multiplies the packed blocks (kernels.h).
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// A matrix in memory, row-major with `ld` elements from row to row. With
// `transposed` the product reads its transpose.
// dtype: kFloat, kE4M3, kE5M2, kBFloat16, or kDouble for both operands.
struct GemmOperand {
  const void* data = nullptr;
  DType dtype = DType::kFloat;
  int64_t ld = 0;
  bool transposed = false;
};

// c (M,N) = scale · op(a) (M,K) · op(b) (K,N)  [+ bias (N)]
//
// With `accumulate`, which needs scale 1 and no bias: c += op(a) · op(b).
// Otherwise c is not read.
//
// Accumulates in fp32 (in double where the operands are double). `scale` and
// `bias` are applied to the finished sum: round(round(sum · scale) + bias).
//
// With row_scale and column_scale, both or none, which need scale 1, floats and
// no `accumulate`: s(m,n) = round(row_scale[m] · column_scale[n]) takes scale's
// place. With scale_depth, which is 32, 64, 128 or 256, they hold M and N such
// scales for every scale_depth of K, g = 0, 1, …: then c is the sum over g, in
// order, of round(sum of g · s(g,m,n)), and bias is added last.
//
// `c` and `bias` are double if the operands are, else float. K = 0 is an empty
// sum. The bits of a result depend on its row of a, its column of b and the
// kernel only: not on the number of threads, M or N. With the kernels of float
// (FloatKernels) small formats give bit for bit what their decoded values give;
// "avx512bf16" gives that for values swapped in pairs along K.
// Errors: a size beyond 2^31 - 1, another dtype, out of memory.
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
  // With Accumulation::kHopper only: sums are never promoted.
  bool fast_accum = false;
  void* c = nullptr;
  int64_t ldc = 0;  // 0: n
};

void Gemm(const GemmProblem& problem);

// Where one product of a batch finds its matrices: elements from the problem's
// data pointers.
struct GemmOffsets {
  int64_t a = 0;
  int64_t b = 0;
  int64_t c = 0;
};

// The same product at each of `batch`. Many small ones run side by side, large
// ones one after the other. REQUIRES: the results do not overlap.
void BatchedGemm(const GemmProblem& problem,
                 std::span<const GemmOffsets> batch);

// How products of two 8-bit floats are added up: in fp32, or as Hopper's tensor
// cores do (hopper.h). Holds from the call on, for all; call it while nothing
// is computed.
enum class Accumulation { kFloat, kHopper };
void SetAccumulation(Accumulation accumulation);
Accumulation ActiveAccumulation();

// What computes the products of floats, and of 8-bit floats, e.g.
// "packed avx512, 8-bit avx512bf16".
std::string GemmBackend();

}  // namespace onnx_fp8
