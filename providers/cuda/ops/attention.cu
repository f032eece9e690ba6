// SPDX-License-Identifier: Apache-2.0
//
// Our Attention ops: their checks. The passes themselves, and their traffic,
// are in providers/cuda/attention/. A library computes what it can, our own
// kernels the rest. Sums are of floats. Before they are multiplied,
// probabilities and gradients of scores are rounded to `round_to`.
// q, k, v and dy are exact in it; if they are not, they are rounded to bfloat16
// too, as the CPU's products of bfloat16 do.
#include "providers/cuda/attention/attention.h"
#include "providers/cuda/attention/by_library.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/attention_ops.h"

namespace onnx_fp8::cuda {
namespace {

// Errors: q is no float, or one that is kept in 64 bits.
void CheckFloat(const KernelContext& ctx, const Tensor& q) {
  Check(q.dtype() == DType::kFloat || IsHalf(q.dtype()), "[", ctx.Where(),
        "] expected operands of float, got ", Name(q.dtype()));
}

void Forward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  CheckFloat(ctx, ctx.In(0));
  if (!ForwardByLibrary(ctx, z, in)) AttentionForward(ctx, z, in);
}

void Backward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  CheckFloat(ctx, ctx.In(1));
  size_t last = in.y();
  CheckOperand(ctx, 0, DType::kFloat, z.y_shape);
  CheckOperand(ctx, last, DType::kFloat, z.y_shape);
  CheckOperand(ctx, last + 1, DType::kFloat, {z.b, z.heads, z.t});
  if (!BackwardByLibrary(ctx, z, in)) AttentionBackward(ctx, z, in);
}

struct AttentionKernels {
  static void Run(KernelContext& ctx, const AttentionInputs& in) {
    in.backward() ? Backward(ctx, in) : Forward(ctx, in);
  }
  static size_t Workspace(KernelContext& ctx, const AttentionInputs& in) {
    AttentionSizes z = SizesOf(ctx, in);
    size_t own = in.backward() ? BackwardWorkspace(z) : 0;
    return LibraryWorkspace(ctx, z, in).value_or(own);
  }
};

}  // namespace

void RegisterAttention(KernelRegistry& r) {
  AttentionOps<AttentionKernels>::Register(r);
}

}  // namespace onnx_fp8::cuda
