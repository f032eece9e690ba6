// SPDX-License-Identifier: Apache-2.0
//
// A matrix that is the right operand of many small products.
#pragma once

#include <cstdint>

#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/gemm/scratch.h"

namespace onnx_fp8 {

// op(b) (K,N), packed once. Everything runs on the calling thread; an object is
// for one thread at a time. Doubles are not packed: their products read the
// operand itself.
class PackedMatrix {
 public:
  // REQUIRES: dtype kDouble, kFloat or, if Bf16Kernels() has products of
  // bfloat16, kBFloat16. An operand of doubles must stay unchanged as long as
  // products read it.
  void Pack(const GemmOperand& b, int64_t k, int64_t n);

  // c (M,N') = scale · op(a) (M,K') · (K' rows of op(b) from `row` on, N'
  // columns from `column` on). With `accumulate`, which needs scale 1, c +=
  // that product. `p` describes it; p's b and bias are not read. With row and
  // column 0 the bits equal Gemm()'s. REQUIRES: a of b's dtype, float results;
  // row + p.k <= K and column + p.n <= N; `row` is a multiple of the panels'
  // DepthUnit, `column` of
  // 32. Rows of an `a` of bfloat16 that is not transposed have zeros up to a
  // depth that is a multiple of 32, and memory for a number of rows that is
  // one.
  void Multiply(const GemmProblem& p, int64_t row = 0,
                int64_t column = 0) const;

 private:
  GemmOperand b_;
  const GemmKernels* kernels_ = nullptr;
  int64_t depth_ = 0, columns_ = 0;  // K, and N in whole panels
  Scratch memory_;
  const char* panels_ = nullptr;
};

}  // namespace onnx_fp8
