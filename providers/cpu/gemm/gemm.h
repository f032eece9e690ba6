// SPDX-License-Identifier: Apache-2.0
//
// The one matrix product of the CPU provider.
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

// c (M,N) = scale · op(a) (M,K) · op(b) (K,N)  [+ bias (N)]  [+ beta · c]
//
// Accumulates in fp32 (in double where the operands are double). `scale` and
// `bias` are applied to the finished sum: round(round(sum · scale) + bias), so
// 8-bit operands give bit for bit what their decoded values give. `c` and
// `bias` are double if the operands are, else float. c is not read if beta is
// 0. K = 0 is an empty sum. Results depend on the arguments and NumThreads()
// only. Errors: a size beyond 2^31 - 1, another dtype, out of memory.
struct GemmProblem {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  GemmOperand a;
  GemmOperand b;
  float scale = 1.0f;
  const void* bias = nullptr;
  float beta = 0.0f;
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

// What computes the products, e.g. "OpenBLAS 0.3.21 (SkylakeX)".
std::string GemmBackend();

}  // namespace onnx_fp8
