// SPDX-License-Identifier: Apache-2.0
//
// MatMul and Gemm by cuBLASLt. Traffic: that of the product. A copy of an
// operand is made where one is float and the other has 16 bits. A pass over the
// result follows where float operands give 16 bits, or where C is added that is
// neither a bias of the result's dtype nor, like the result, a matrix of
// floats.
#include <algorithm>

#include "providers/arguments.h"
#include "providers/broadcast.h"
#include "providers/cuda/core/check.h"
#include "providers/cuda/gemm/finish.h"
#include "providers/cuda/gemm/product.h"
#include "providers/cuda/ops/convert.h"
#include "providers/cuda/register.h"
#include "providers/divide_up.h"

namespace onnx_fp8::cuda {
namespace {

size_t Aligned(int64_t bytes) {
  return static_cast<size_t>(RoundUp(bytes, 256));
}

// The operands in one dtype, and the place of the sums.
struct Prepared {
  const void *a, *b;
  DType dtype;
  void* sums;
  DType sums_dtype;
};

DType CommonDType(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() ? a.dtype() : DType::kFloat;
}

// Whether a product of operands of that dtype can round its result to y's.
bool WritesResult(DType operands, const FloatsOut& y) {
  return y.kept == Kept::kFloat || operands == KeptDType(y.kept);
}

// `finishes`: the sums are not yet the result.
Prepared Prepare(KernelContext& ctx, const Tensor& a, const Tensor& b,
                 const FloatsOut& y, int64_t y_size, bool finishes) {
  Prepared p = {a.raw(), b.raw(), CommonDType(a, b), y.data, DType::kFloat};
  bool mixed = a.dtype() != b.dtype();
  bool direct = !finishes && WritesResult(p.dtype, y);
  auto copies = [&](const Tensor& x) {
    return mixed && x.dtype() != DType::kFloat;
  };
  size_t a_bytes = copies(a) ? Aligned(a.size() * 4) : 0;
  size_t b_bytes = copies(b) ? Aligned(b.size() * 4) : 0;
  size_t y_bytes = direct ? 0 : Aligned(y_size * 4);
  Queue& queue = QueueOf(ctx);
  auto* at = static_cast<char*>(queue.Scratch(a_bytes + b_bytes + y_bytes));
  auto widen = [&](const Tensor& x, char* to) {
    Convert(queue, ctx.Where(), x.raw(), x.dtype(), to, DType::kFloat,
            x.size());
    return to;
  };
  if (a_bytes > 0) p.a = widen(a, at);
  if (b_bytes > 0) p.b = widen(b, at + a_bytes);
  if (direct) p.sums_dtype = KeptDType(y.kept);
  if (!direct) p.sums = at + a_bytes + b_bytes;
  return p;
}

const void* At(const void* data, int64_t element, DType dtype) {
  return static_cast<const char*>(data) +
         element * static_cast<int64_t>(ByteSize(dtype));
}

// NumPy's rules: a (…,M,K) · b (…,K,N) = y (…,M,N); leading axes broadcast. A
// 1-D operand lacks M (or N), and so does the result.
struct Sizes {
  int64_t m = 1, n = 1, k = 0;
  Shape a_lead, b_lead, lead, y;
};

Shape Leading(const Tensor& t) {
  return Shape(t.shape().begin(),
               t.shape().end() - std::min<int64_t>(t.rank(), 2));
}

Sizes SizesOf(const KernelContext& ctx, const Tensor& a, const Tensor& b) {
  Check(a.rank() > 0 && b.rank() > 0, "[", ctx.Where(),
        "] expected operands of rank 1 or more, got ", ToString(a.shape()),
        " and ", ToString(b.shape()));
  Sizes s = {.k = a.dim(-1), .a_lead = Leading(a), .b_lead = Leading(b)};
  if (a.rank() > 1) s.m = a.dim(-2);
  if (b.rank() > 1) s.n = b.dim(-1);
  int64_t b_k = b.rank() > 1 ? b.dim(-2) : b.dim(0);
  Check(b_k == s.k, "[", ctx.Where(),
        "] expected operands that share an axis, got ", ToString(a.shape()),
        " and ", ToString(b.shape()));
  s.lead = BroadcastShapes(s.a_lead, s.b_lead, ctx.Where());
  s.y = s.lead;
  if (a.rank() > 1) s.y.push_back(s.m);
  if (b.rank() > 1) s.y.push_back(s.n);
  return s;
}

// All products of a MatMul, as few calls as its strides allow.
void MultiplyAll(Queue& queue, const Sizes& s, const Prepared& p) {
  Product product = {.m = s.m, .n = s.n, .k = s.k, .y_dtype = p.sums_dtype};
  product.a.dtype = product.b.dtype = p.dtype;
  BroadcastPlan plan = PlanBroadcast({s.a_lead, s.b_lead}, s.lead);
  const auto& step = plan.strides.back();
  product.a.batch_stride = step[0] * s.m * s.k;
  product.b.batch_stride = step[1] * s.k * s.n;
  product.y_batch_stride = s.m * s.n;
  ForRuns(plan, 0, plan.n, [&](const int64_t* from, int64_t at, int64_t count) {
    product.batch = count;
    product.a.data = At(p.a, from[0] * s.m * s.k, p.dtype);
    product.b.data = At(p.b, from[1] * s.k * s.n, p.dtype);
    product.y = const_cast<void*>(At(p.sums, at * s.m * s.n, p.sums_dtype));
    queue.Own<Products>().Multiply(product, queue.stream());
  });
}

void Clear(const Queue& queue, void* y, DType dtype, int64_t n) {
  ONNX_FP8_CUDA(cudaMemsetAsync(y, 0, static_cast<size_t>(n) * ByteSize(dtype),
                                queue.stream()));
}

void MatMul(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  KeptAs(ctx, a.dtype());
  KeptAs(ctx, b.dtype());
  Sizes s = SizesOf(ctx, a, b);
  FloatsOut y = FloatsTo(ctx, 0, s.y);
  int64_t size = NumElements(s.y);
  if (size == 0) return;
  // Leading axes of a alone make one tall product.
  if (NumElements(s.b_lead) == 1 && s.a_lead.size() >= s.b_lead.size()) {
    s.m *= NumElements(s.a_lead);
    s.a_lead = s.b_lead = s.lead = {};
  }
  Queue& queue = QueueOf(ctx);
  Prepared p = Prepare(ctx, a, b, y, size, false);
  if (s.k == 0) {
    Clear(queue, p.sums, p.sums_dtype, size);
  } else {
    MultiplyAll(queue, s, p);
  }
  if (p.sums == y.data) return;
  FinishProduct(queue, {.m = size,
                        .n = 1,
                        .sum = static_cast<const float*>(p.sums),
                        .ld = 1,
                        .y = y});
}

// y = alpha · op(a) · op(b) + beta · c
void Gemm(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  Check(a.rank() == 2 && b.rank() == 2, "[", ctx.Where(),
        "] expected matrices, got ", ToString(a.shape()), " and ",
        ToString(b.shape()));
  KeptAs(ctx, a.dtype());
  KeptAs(ctx, b.dtype());
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  int64_t m = a.dim(ta ? 1 : 0), k = a.dim(ta ? 0 : 1);
  int64_t n = b.dim(tb ? 0 : 1);
  float beta = ctx.Float("beta", 1.0f);
  bool has_c = ctx.HasIn(2) && beta != 0;
  Check(b.dim(tb ? 1 : 0) == k, "[", ctx.Where(),
        "] expected operands that share an axis, got ", ToString(a.shape()),
        " and ", ToString(b.shape()));
  FloatsIn c = has_c ? FloatsOf(ctx, 2) : FloatsIn{};
  FloatsOut y = FloatsTo(ctx, 0, {m, n});
  if (m == 0 || n == 0) return;
  Queue& queue = QueueOf(ctx);
  DType operands = CommonDType(a, b);
  bool is_bias = has_c && beta == 1 && k > 0 && c.data != y.data &&
                 ctx.In(2).shape() == Shape{n} && WritesResult(operands, y) &&
                 TakesBias(operands, KeptDType(y.kept), KeptDType(c.kept));
  bool is_sum = has_c && k > 0 && ctx.In(2).shape() == Shape{m, n} &&
                c.kept == Kept::kFloat && y.kept == Kept::kFloat;
  Prepared p = Prepare(ctx, a, b, y, m * n, has_c && !is_bias && !is_sum);
  if (k == 0) {
    Clear(queue, p.sums, p.sums_dtype, m * n);
  } else {
    queue.Own<Products>().Multiply(
        {.m = m,
         .n = n,
         .k = k,
         .a = {.data = p.a, .dtype = p.dtype, .transposed = ta},
         .b = {.data = p.b, .dtype = p.dtype, .transposed = tb},
         .y = p.sums,
         .y_dtype = p.sums_dtype,
         .alpha = ctx.Float("alpha", 1.0f),
         .beta = is_sum ? beta : 0,
         .c = is_sum ? c.data : nullptr,
         .bias = is_bias ? c.data : nullptr,
         .bias_dtype = KeptDType(c.kept)},
        queue.stream());
  }
  if (p.sums == y.data) return;
  Finish finish = {.m = m,
                   .n = n,
                   .sum = static_cast<const float*>(p.sums),
                   .ld = n,
                   .beta = beta,
                   .y = y};
  if (has_c) {
    const Shape& shape = ctx.In(2).shape();
    Check(shape.size() <= 2 &&
              BroadcastShapes(shape, {m, n}, ctx.Where()) == Shape({m, n}),
          "[", ctx.Where(), "] expected C that broadcasts to ",
          ToString(Shape({m, n})), ", got ", ToString(shape));
    std::vector<int64_t> strides = BroadcastStrides(shape, 2);
    finish.c = c;
    finish.c_row = strides[0];
    finish.c_column = strides[1];
  }
  FinishProduct(queue, finish);
}

}  // namespace

void RegisterMatMul(KernelRegistry& r) {
  const KernelTraits narrow{.narrow_in = {0, 1}, .narrow_out = {0}};
  r.Add("MatMul", MatMul, narrow);
  r.Add("Gemm", Gemm,
        {.in_place = {{2, 0}}, .narrow_in = {0, 1, 2}, .narrow_out = {0}});
}

}  // namespace onnx_fp8::cuda
