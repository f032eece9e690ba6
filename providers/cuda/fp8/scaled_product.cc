// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/fp8/scaled_product.h"

#include "providers/arguments.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/gemm/finish.h"
#include "providers/cuda/gemm/product.h"
#include "providers/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int64_t kUnit = 16;       // of sizes in FP8 products
constexpr size_t kAlignment = 256;  // of parts of the scratch memory

size_t Aligned(int64_t bytes) {
  return static_cast<size_t>(RoundUp(bytes, kAlignment));
}

// An operand that cuBLASLt can read as it is.
bool Fits(const Codes& x) {
  return !x.k_is_rows && x.k() % kUnit == 0 && x.outer() % kUnit == 0;
}

// The operands as cuBLASLt reads them, and the place of the sums. The order in
// the scratch memory: a, b, sums.
struct Prepared {
  int64_t m, n, k;  // padded
  const uint8_t *a, *b;
  float* sums;  // null: the product goes straight into the result
};

Prepared Prepare(Queue& queue, const Codes& a, const Codes& b, bool direct) {
  Prepared p = {.m = RoundUp(a.outer(), kUnit),
                .n = RoundUp(b.outer(), kUnit),
                .k = RoundUp(a.k(), kUnit)};
  bool pads = p.m != a.outer() || p.n != b.outer();
  size_t a_bytes = Fits(a) ? 0 : Aligned(p.m * p.k);
  size_t b_bytes = Fits(b) ? 0 : Aligned(p.n * p.k);
  size_t y_bytes = direct && !pads ? 0 : Aligned(p.m * p.n * 4);
  auto* at = static_cast<uint8_t*>(queue.Scratch(a_bytes + b_bytes + y_bytes));
  p.a = a_bytes > 0 ? at : a.data;
  p.b = b_bytes > 0 ? at + a_bytes : b.data;
  p.sums =
      y_bytes > 0 ? reinterpret_cast<float*>(at + a_bytes + b_bytes) : nullptr;
  if (a_bytes > 0) PackKMajor(queue, a, p.m, p.k, at);
  if (b_bytes > 0) PackKMajor(queue, b, p.n, p.k, at + a_bytes);
  return p;
}

DType DTypeOf(Kept kept) {
  return kept == Kept::kFloat      ? DType::kFloat
         : kept == Kept::kBFloat16 ? DType::kBFloat16
                                   : DType::kFloat16;
}

// y, or the sums, of the padded operands. An empty sum is 0.
void MultiplyPrepared(Queue& queue, const Prepared& p, const ScaledOperand& a,
                      const ScaledOperand& b, void* y, DType y_dtype) {
  if (p.k == 0) {
    ONNX_FP8_CUDA(cudaMemsetAsync(
        y, 0, static_cast<size_t>(p.m * p.n) * ByteSize(y_dtype),
        queue.stream()));
    return;
  }
  queue.Own<Products>().Multiply(
      {.m = p.m,
       .n = p.n,
       .k = p.k,
       .a = {.data = p.a, .dtype = a.dtype, .scale = a.scale},
       .b = {.data = p.b,
             .dtype = b.dtype,
             .transposed = true,
             .scale = b.scale},
       .y = y,
       .y_dtype = y_dtype},
      queue.stream());
}

}  // namespace

ScaledOperand CodesOf(const KernelContext& ctx, size_t i, bool transposed,
                      bool is_a) {
  const Tensor& t = Operand(ctx, i);
  Check(IsFloat8(t.dtype()) && t.rank() >= 2, "[", ctx.Where(),
        "] expected an 8-bit float of rank 2 or more, got ", Name(t.dtype()),
        ToString(t.shape()));
  Shape lead(t.shape().begin(), t.shape().end() - 1);
  ScaledOperand x;
  x.codes = {static_cast<const uint8_t*>(t.raw()), NumElements(lead), t.dim(-1),
             transposed == is_a};
  x.dtype = t.dtype();
  return x;
}

Shape ProductShape(const Tensor& a, bool transposed, int64_t m, int64_t n) {
  if (transposed) return {m, n};
  Shape shape = a.shape();
  shape.back() = n;
  return shape;
}

const float* BiasOf(const KernelContext& ctx, int64_t n) {
  CheckOperand(ctx, 4, DType::kFloat, {n});
  return static_cast<const float*>(ctx.In(4).raw());
}

void MultiplyScaled(KernelContext& ctx, const ScaledOperand& a,
                    const ScaledOperand& b, bool has_bias) {
  int64_t m = a.codes.outer(), n = b.codes.outer();
  Check(a.codes.k() == b.codes.k(), "[", ctx.Where(),
        "] expected operands that share an axis, got ",
        ToString(ctx.In(0).shape()), " and ", ToString(ctx.In(2).shape()));
  Check(a.dtype != DType::kE5M2 || b.dtype != DType::kE5M2, "[", ctx.Where(),
        "] expected one operand at most in float8e5m2, got two: cuBLASLt has "
        "no such product; give weights and activations e4m3 in the recipe");
  const float* bias = has_bias ? BiasOf(ctx, n) : nullptr;
  FloatsOut y =
      FloatsTo(ctx, 0, ProductShape(ctx.In(0), a.codes.k_is_rows, m, n));
  if (m == 0 || n == 0) return;
  Queue& queue = QueueOf(ctx);
  bool direct = !bias && !a.outer_scales && !b.outer_scales;
  Prepared p = Prepare(queue, a.codes, b.codes, direct);
  if (!p.sums) {
    return MultiplyPrepared(queue, p, a, b, y.data, DTypeOf(y.kept));
  }
  MultiplyPrepared(queue, p, a, b, p.sums, DType::kFloat);
  FinishProduct(queue, {.m = m,
                        .n = n,
                        .sum = p.sums,
                        .ld = p.n,
                        .row_scale = a.outer_scales,
                        .column_scale = b.outer_scales,
                        .c = bias,
                        .c_column = 1,
                        .y = y});
}

}  // namespace onnx_fp8::cuda
