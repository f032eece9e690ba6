// SPDX-License-Identifier: Apache-2.0
//
// A matrix that is the right operand of many small products.
#pragma once

#include <cstdint>

#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/gemm/scratch.h"

namespace onnx_fp8 {

// op(b) (K,N), packed once. Everything runs on the calling thread; an object is
// for one thread at a time. Floats are packed, doubles are not: their products
// read the operand itself.
class PackedMatrix {
 public:
  // REQUIRES: dtype kFloat or kDouble. An operand of doubles must stay
  // unchanged as long as products read it.
  void Pack(const GemmOperand& b, int64_t k, int64_t n);

  // c (M,N') = scale · op(a) (M,K') · (the first K' rows and N' columns of
  // op(b)). With `accumulate`, which needs scale 1, c += that product. `p`
  // describes it; p's b and bias are not read. The bits are those of Gemm().
  // REQUIRES: p.k <= K, p.n <= N, a of b's dtype.
  void Multiply(const GemmProblem& p) const;

 private:
  GemmOperand b_;
  int64_t depth_ = 0, columns_ = 0;  // K, and N in whole panels
  Scratch memory_;
  const char* panels_ = nullptr;
};

}  // namespace onnx_fp8
