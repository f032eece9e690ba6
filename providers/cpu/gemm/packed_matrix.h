// SPDX-License-Identifier: Apache-2.0
//
// A matrix that many small products share as their right operand.
#pragma once

#include <cstdint>

#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/gemm/scratch.h"

namespace onnx_fp8 {

// op(b) (K,N), packed once. All of it runs on the calling thread; an object is
// for one thread at a time. float is packed, double is not: products of it read
// the operand itself.
class PackedMatrix {
 public:
  // REQUIRES: dtype kFloat or kDouble. What a product of doubles reads must
  // stay as it is.
  void Pack(const GemmOperand& b, int64_t k, int64_t n);

  // c (M,N') = scale · op(a) (M,K') · op(b)'s first K' rows and N' columns;
  // with `accumulate`, which needs scale 1, c += the same. `p` is such a
  // product but for its b and bias, which are not read. The bits are those of
  // Gemm(). REQUIRES: p.k <= K, p.n <= N, a of b's dtype.
  void Multiply(const GemmProblem& p) const;

 private:
  GemmOperand b_;
  int64_t depth_ = 0, columns_ = 0;  // K, and N in whole panels
  Scratch memory_;
  const char* panels_ = nullptr;
};

}  // namespace onnx_fp8
