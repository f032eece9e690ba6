// SPDX-License-Identifier: Apache-2.0
//
// Our Attention ops: the choice of operands for their products. The passes
// themselves are in providers/cpu/attention/.
#include "providers/cpu/attention/attention.h"

#include <cstring>

#include "providers/cpu/amax_meter.h"
#include "providers/cpu/gemm/kernels.h"
#include "providers/cpu/stored.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/attention_ops.h"

namespace onnx_fp8 {
namespace {

// Calls run<E>() for the elements E that the node's products read: bfloat16
// where the machine multiplies it.
template <typename Run>
void DispatchOperands(const KernelContext& ctx, DType dtype,
                      const AttentionSizes& z, const Run& run) {
  if (dtype == DType::kDouble) return run.template operator()<double>();
  Check(dtype == DType::kFloat, "[", ctx.Where(),
        "] expected operands of a float dtype, got ", Name(dtype));
  if (z.round_to == DType::kBFloat16 &&
      Bf16Kernels().a_layout != PanelLayout::kFloat) {
    run.template operator()<KeptBFloat16>();
  } else {
    run.template operator()<float>();
  }
}

void Forward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  DispatchOperands(ctx, ComputedAs(ctx.In(0)), z,
                   [&]<typename E>() { AttentionForward<E>(ctx, z, in); });
}

void Backward(KernelContext& ctx, const AttentionInputs& in) {
  AttentionSizes z = SizesOf(ctx, in);
  DType dtype = ComputedAs(ctx.In(1));
  size_t last = in.y();
  CheckOperand(ctx, 0, dtype, z.y_shape);
  CheckOperand(ctx, last, dtype, z.y_shape);
  CheckOperand(ctx, last + 1, dtype, {z.b, z.heads, z.t});
  if (z.s == 0 || z.t == 0) {
    for (size_t i = 0; i < in.gradients(); ++i) {
      AmaxMeter meter(ctx, i);
      if (!ctx.HasOut(i)) continue;
      Tensor x = StoredResult(ctx, i, dtype, ctx.In(i + 1).shape());
      std::memset(x.raw(), 0, x.bytes());
    }
    return;
  }
  DispatchOperands(ctx, dtype, z,
                   [&]<typename E>() { AttentionBackward<E>(ctx, z, in); });
}

struct AttentionKernels {
  static void Run(KernelContext& ctx, const AttentionInputs& in) {
    in.backward() ? Backward(ctx, in) : Forward(ctx, in);
  }
};

}  // namespace

void RegisterAttention(KernelRegistry& r) {
  AttentionOps<AttentionKernels>::Register(r);
}

}  // namespace onnx_fp8
