// SPDX-License-Identifier: Apache-2.0
//
// A product of FP8 codes by cuBLASLt, whatever their sizes and orientation.
// On Hopper both operands must have K along their rows of memory, and all sizes
// must be multiples of 16. Operands that differ are copied first.
#pragma once

#include "onnx_fp8/dtype.h"
#include "onnx_fp8/shape.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/gemm/k_major.h"
#include "providers/cuda/gemm/product.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {

struct ScaledOperand {
  Codes codes;
  DType dtype = DType::kE4M3;
  ScaleMode mode = ScaleMode::kOne;
  // On the device, one for each block of the codes, in the order of the blocks.
  // float8e8m0 with kMx, else float.
  const void* scales = nullptr;
};

// What operand 4 of a product is: nothing, a row that is added to each row of
// the result, or a matrix of its shape, which may lie where the result does.
enum class Addend : uint8_t { kNone, kBias, kMatrix };

struct Added {
  Addend kind = Addend::kNone;
  FloatsIn c = {};

  // Elements from one row to the next, of a result with n columns.
  int64_t RowOf(int64_t n) const { return kind == Addend::kMatrix ? n : 0; }
};

// Operand i of the node, codes, and its attribute transA or transB. Errors: no
// FP8 of rank 2 or more. The scales are left to the caller.
ScaledOperand CodesOf(const KernelContext& ctx, size_t i, bool transposed,
                      bool is_a);

// Result 0, of that shape, = a · b, scaled [+ operand 4]. Scales of
// outer elements are part of the product if cuBLASLt has it, else factors of
// the sums. Rows of a and columns of b beyond the shape are left out. REQUIRES:
// HasProduct() if a mode is kVector128, kBlock128 or kMx. Errors: sizes that
// don't fit; both operands are E5M2.
void MultiplyScaled(KernelContext& ctx, const ScaledOperand& a,
                    const ScaledOperand& b, Addend addend, const Shape& shape);

// The workspace of MultiplyScaled's node.
size_t ScaledWorkspace(KernelContext& ctx, const ScaledOperand& a,
                       const ScaledOperand& b, Addend addend,
                       const Shape& shape);

// Whether cuBLASLt has the product that MultiplyScaled needs. No size is 0.
bool HasProduct(KernelContext& ctx, const ScaledOperand& a,
                const ScaledOperand& b, Addend addend, const Shape& shape);

// Operand 4 of a product of that shape. Errors: another dtype or shape.
Added AddedIn(const KernelContext& ctx, Addend kind, const Shape& shape);

// The shape of the result: a's with its last axis replaced, or (m, n) if a is
// transposed.
Shape ProductShape(const Tensor& a, const ScaledOperand& of_a,
                   const ScaledOperand& of_b);

}  // namespace onnx_fp8::cuda
