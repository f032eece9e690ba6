// SPDX-License-Identifier: Apache-2.0
//
// MatMul and Gemm by cuBLASLt. Traffic: the product's. A copy of an operand is
// made where one is float and the other has 16 bits. A pass over the result
// follows where float operands give 16 bits, or where C is added that is
// neither a bias of the result's dtype nor, like the result, a matrix of
// floats.
#include <algorithm>
#include <tuple>

#include "providers/cuda/core/check.h"
#include "providers/cuda/gemm/finish.h"
#include "providers/cuda/gemm/product.h"
#include "providers/cuda/ops/convert.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/broadcast.h"
#include "providers/ops/divide_up.h"

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
  void* workspace;
};

DType CommonDType(const Tensor& a, const Tensor& b) {
  return a.dtype() == b.dtype() ? a.dtype() : DType::kFloat;
}

// Whether a product of operands of that dtype can round its result to y's.
bool WritesResult(DType operands, const FloatsOut& y) {
  return y.storage == Storage::kFloat || operands == StorageDType(y.storage);
}

// The kernel's workspace: cuBLASLt's, and behind it copies of operands as
// floats, and sums that are not yet the result.
struct Parts {
  size_t a = 0, b = 0, sums = 0;
  size_t bytes() const { return kProductWorkspace + a + b + sums; }
};

// `finishes`: a pass over the sums follows in any case.
Parts PartsOf(const Tensor& a, const Tensor& b, const FloatsOut& y,
              int64_t y_size, bool finishes) {
  DType common = CommonDType(a, b);
  auto copied = [&](const Tensor& x) {
    return x.dtype() == common ? 0 : Aligned(x.size() * 4);
  };
  bool direct = !finishes && WritesResult(common, y);
  return {copied(a), copied(b), direct ? 0 : Aligned(y_size * 4)};
}

Prepared Prepare(KernelContext& ctx, const Tensor& a, const Tensor& b,
                 const FloatsOut& y, const Parts& parts) {
  Prepared p = {a.raw(), b.raw(),       CommonDType(a, b),
                y.data,  DType::kFloat, nullptr};
  Queue& queue = QueueOf(ctx);
  p.workspace = ctx.Workspace(parts.bytes());
  auto* at = static_cast<char*>(p.workspace) + kProductWorkspace;
  auto widen = [&](const Tensor& x, char* to) {
    Convert(queue, ctx.Where(), x.raw(), x.dtype(), to, DType::kFloat,
            x.size());
    return to;
  };
  if (parts.a > 0) p.a = widen(a, at);
  if (parts.b > 0) p.b = widen(b, at + parts.a);
  if (parts.sums > 0) {
    p.sums = at + parts.a + parts.b;
  } else {
    p.sums_dtype = StorageDType(y.storage);
  }
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
    queue.Own<Products>().Multiply(product, p.workspace, queue);
  });
}

void Clear(const Queue& queue, void* y, DType dtype, int64_t n) {
  ONNX_FP8_CUDA(cudaMemsetAsync(y, 0, static_cast<size_t>(n) * ByteSize(dtype),
                                queue.stream()));
}

void MatMul(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  StorageOf(ctx, a.dtype());
  StorageOf(ctx, b.dtype());
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
  Prepared p = Prepare(ctx, a, b, y, PartsOf(a, b, y, size, false));
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

size_t MatMulWorkspace(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  Sizes s = SizesOf(ctx, a, b);
  FloatsOut y = FloatsTo(ctx, 0, s.y);
  return PartsOf(a, b, y, NumElements(s.y), false).bytes();
}

// Sizes, and how C comes into the result: as a bias of the product, as a matrix
// to which the product is added, or else by a pass over the sums.
struct GemmCall {
  bool ta, tb;
  int64_t m, n, k;
  float beta;
  FloatsIn c;
  FloatsOut y;
  bool has_c, is_bias, is_sum;

  Parts PartsFor(const Tensor& a, const Tensor& b) const {
    return PartsOf(a, b, y, m * n, has_c && !is_bias && !is_sum);
  }
};

GemmCall CallOf(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  Check(a.rank() == 2 && b.rank() == 2, "[", ctx.Where(),
        "] expected matrices, got ", ToString(a.shape()), " and ",
        ToString(b.shape()));
  StorageOf(ctx, a.dtype());
  StorageOf(ctx, b.dtype());
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  GemmCall g = {.ta = ta,
                .tb = tb,
                .m = a.dim(ta ? 1 : 0),
                .n = b.dim(tb ? 0 : 1),
                .k = a.dim(ta ? 0 : 1),
                .beta = ctx.Float("beta", 1.0f),
                .c = {},
                .y = {},
                .has_c = false,
                .is_bias = false,
                .is_sum = false};
  Check(b.dim(tb ? 1 : 0) == g.k, "[", ctx.Where(),
        "] expected operands that share an axis, got ", ToString(a.shape()),
        " and ", ToString(b.shape()));
  g.y = FloatsTo(ctx, 0, {g.m, g.n});
  g.has_c = ctx.HasIn(2) && g.beta != 0;
  if (!g.has_c) return g;
  g.c = FloatsOf(ctx, 2);
  const Shape& shape = ctx.In(2).shape();
  DType operands = CommonDType(a, b);
  // One row may lie where its bias does; a plan does not know yet.
  bool apart = g.m > 1 || g.c.data != g.y.data;
  g.is_bias =
      g.beta == 1 && g.k > 0 && apart && shape == Shape{g.n} &&
      WritesResult(operands, g.y) &&
      TakesBias(operands, StorageDType(g.y.storage), StorageDType(g.c.storage));
  g.is_sum = g.k > 0 && shape == Shape{g.m, g.n} &&
             g.c.storage == Storage::kFloat && g.y.storage == Storage::kFloat;
  return g;
}

size_t GemmWorkspace(KernelContext& ctx) {
  return CallOf(ctx).PartsFor(ctx.In(0), ctx.In(1)).bytes();
}

// y = alpha · op(a) · op(b) + beta · c
void Gemm(KernelContext& ctx) {
  GemmCall g = CallOf(ctx);
  auto [m, n, k] = std::tuple(g.m, g.n, g.k);
  if (m == 0 || n == 0) return;
  const Tensor &a = ctx.In(0), &b = ctx.In(1);
  const FloatsOut& y = g.y;
  Queue& queue = QueueOf(ctx);
  Prepared p = Prepare(ctx, a, b, y, g.PartsFor(a, b));
  if (k == 0) {
    Clear(queue, p.sums, p.sums_dtype, m * n);
  } else {
    queue.Own<Products>().Multiply(
        {.m = m,
         .n = n,
         .k = k,
         .a = {.data = p.a, .dtype = p.dtype, .transposed = g.ta},
         .b = {.data = p.b, .dtype = p.dtype, .transposed = g.tb},
         .y = p.sums,
         .y_dtype = p.sums_dtype,
         .alpha = ctx.Float("alpha", 1.0f),
         .beta = g.is_sum ? g.beta : 0,
         .c = g.is_sum ? g.c.data : nullptr,
         .bias = g.is_bias ? g.c.data : nullptr,
         .bias_dtype = StorageDType(g.c.storage)},
        p.workspace, queue);
  }
  if (p.sums == y.data) return;
  Finish finish = {.m = m,
                   .n = n,
                   .sum = static_cast<const float*>(p.sums),
                   .ld = n,
                   .beta = g.beta,
                   .y = y};
  if (g.has_c) {
    const Shape& shape = ctx.In(2).shape();
    Check(shape.size() <= 2 &&
              BroadcastShapes(shape, {m, n}, ctx.Where()) == Shape({m, n}),
          "[", ctx.Where(), "] expected C that broadcasts to ",
          ToString(Shape({m, n})), ", got ", ToString(shape));
    std::vector<int64_t> strides = BroadcastStrides(shape, 2);
    finish.c = g.c;
    finish.c_row = strides[0];
    finish.c_column = strides[1];
  }
  FinishProduct(queue, finish);
}

}  // namespace

void RegisterMatMul(KernelRegistry& r) {
  r.Add("MatMul", MatMul,
        {.narrow_in = {0, 1}, .narrow_out = {0}, .workspace = MatMulWorkspace});
  r.Add("Gemm", Gemm,
        {.in_place = {{2, 0}},
         .narrow_in = {0, 1, 2},
         .narrow_out = {0},
         .workspace = GemmWorkspace});
}

}  // namespace onnx_fp8::cuda
