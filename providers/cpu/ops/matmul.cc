// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <type_traits>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/gemm/gemm.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/broadcast.h"

namespace onnx_fp8 {
namespace {

// The c_dtype of a product whose result is y.
DType ResultDType(const Tensor& y) {
  return IsHalf(y.dtype()) ? y.dtype() : DType::kFloat;
}

// NumPy's rules: a (…,M,K) · b (…,K,N) = y (…,M,N); leading axes broadcast. A
// 1-D operand lacks M (or N), and so does the result.
struct MatMulShape {
  int64_t m = 1, n = 1, k = 0;
  Shape y;
  std::vector<GemmOffsets> batch;
};

// The shape without the last two axes.
Shape Leading(const Tensor& t) {
  return Shape(t.shape().begin(),
               t.shape().end() - std::min<int64_t>(t.rank(), 2));
}

// The shapes, without the list of products. Errors: operands that do not fit.
MatMulShape ShapeOf(const Tensor& a, const Tensor& b,
                    const std::string& where) {
  Check(a.rank() > 0 && b.rank() > 0, "[", where,
        "] expected operands of rank 1 or more, got ", ToString(a.shape()),
        " and ", ToString(b.shape()));
  MatMulShape s;
  s.k = a.dim(-1);
  if (a.rank() > 1) s.m = a.dim(-2);
  if (b.rank() > 1) s.n = b.dim(-1);
  int64_t b_k = b.rank() > 1 ? b.dim(-2) : b.dim(0);
  Check(b_k == s.k, "[", where, "] expected operands that share an axis, got ",
        ToString(a.shape()), " and ", ToString(b.shape()));
  Shape lead = BroadcastShapes(Leading(a), Leading(b), where);
  s.y = lead;
  if (a.rank() > 1) s.y.push_back(s.m);
  if (b.rank() > 1) s.y.push_back(s.n);
  return s;
}

// Fills in the products to compute. REQUIRES: y is not empty.
void PlanProducts(const Tensor& a, const Tensor& b, const std::string& where,
                  MatMulShape& s) {
  Shape a_lead = Leading(a), b_lead = Leading(b);
  if (NumElements(b_lead) == 1 && a_lead.size() >= b_lead.size()) {
    s.m *= NumElements(a_lead);  // one tall product
    s.batch = {{}};
    return;
  }
  Shape lead = BroadcastShapes(a_lead, b_lead, where);
  BroadcastPlan plan = PlanBroadcast({a_lead, b_lead}, lead);
  const auto& step = plan.strides.back();
  ForRuns(plan, 0, plan.n, [&](const int64_t* from, int64_t at, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      s.batch.push_back({(from[0] + i * step[0]) * s.m * s.k,
                         (from[1] + i * step[1]) * s.k * s.n,
                         (at + i) * s.m * s.n});
    }
  });
}

// Integers wrap around, as in NumPy.
template <typename T>
void IntegerProduct(const MatMulShape& s, const T* a, const T* b, T* y) {
  using Wide = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  for (const GemmOffsets& at : s.batch) {
    for (int64_t i = 0; i < s.m; ++i) {
      T* row = y + at.c + i * s.n;
      std::fill(row, row + s.n, T{0});
      for (int64_t k = 0; k < s.k; ++k) {
        auto x = static_cast<Wide>(a[at.a + i * s.k + k]);
        const T* w = b + at.b + k * s.n;
        for (int64_t j = 0; j < s.n; ++j) {
          row[j] = static_cast<T>(static_cast<Wide>(row[j]) +
                                  x * static_cast<Wide>(w[j]));
        }
      }
    }
  }
}

void MatMul(KernelContext& ctx) {
  const Tensor &a = ctx.In(0), &b = ctx.In(1);
  DType dtype = ComputedAs(ctx, a, b);
  MatMulShape s = ShapeOf(a, b, ctx.Where());
  Tensor y = StoredResult(ctx, 0, dtype, s.y);
  if (y.size() == 0) return;
  PlanProducts(a, b, ctx.Where(), s);
  DispatchNumeric(dtype, ctx.Where(), [&]<typename T>() {
    if constexpr (std::is_floating_point_v<T>) {
      GemmProblem p = {.m = s.m,
                       .n = s.n,
                       .k = s.k,
                       .c = y.raw(),
                       .c_dtype = ResultDType(y)};
      p.a = {.data = a.raw(), .dtype = a.dtype(), .ld = s.k};
      p.b = {.data = b.raw(), .dtype = b.dtype(), .ld = s.n};
      BatchedGemm(p, s.batch);
    } else {
      IntegerProduct(s, a.data<T>(), b.data<T>(), y.data<T>());
    }
  });
}

// y (M,N) = beta · x, x broadcast to (M,N); x may be y.
template <typename T>
void WriteScaled(const Tensor& x, T beta, Tensor& y, const std::string& where) {
  Check(x.rank() <= 2 &&
            BroadcastShapes(x.shape(), y.shape(), where) == y.shape(),
        "[", where, "] expected C that broadcasts to ", ToString(y.shape()),
        ", got ", ToString(x.shape()));
  if (x.raw() == y.raw() && beta == T{1}) return;
  int64_t m = y.dim(0), n = y.dim(1);
  int64_t columns = x.rank() > 0 ? x.dim(-1) : 1;
  int64_t rows = x.rank() > 1 ? x.dim(0) : 1;
  int64_t column_step = columns == 1 ? 0 : 1;
  int64_t row_step = rows == 1 ? 0 : columns;
  ParallelFor(m, RowsPerTask(n), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* from = x.data<T>() + i * row_step;
      T* to = y.data<T>() + i * n;
      for (int64_t j = 0; j < n; ++j) to[j] = beta * from[j * column_step];
    }
  });
}

// y = alpha · op(a) · op(b) + beta · c
void GemmOp(KernelContext& ctx) {
  const Tensor &a = ctx.In(0), &b = ctx.In(1);
  Check(a.rank() == 2 && b.rank() == 2, "[", ctx.Where(),
        "] expected matrices, got ", ToString(a.shape()), " and ",
        ToString(b.shape()));
  bool ta = ctx.Int("transA", 0) != 0, tb = ctx.Int("transB", 0) != 0;
  int64_t m = a.dim(ta ? 1 : 0), k = a.dim(ta ? 0 : 1);
  int64_t n = b.dim(tb ? 0 : 1);
  bool has_c = ctx.HasIn(2) && ctx.Float("beta", 1.0f) != 0;
  DType dtype = ComputedAs(a);
  Check(b.dim(tb ? 1 : 0) == k && dtype == ComputedAs(b) &&
            (!has_c || ctx.In(2).dtype() == dtype),
        "[", ctx.Where(), "] expected operands that fit, got ", Name(a.dtype()),
        ToString(a.shape()), " and ", Name(b.dtype()), ToString(b.shape()));
  float beta = ctx.Float("beta", 1.0f);
  Tensor y = StoredResult(ctx, 0, dtype, {m, n});
  // One row may lie where its bias does.
  bool is_bias = has_c && beta == 1.0f && ctx.In(2).shape() == Shape{n} &&
                 ctx.In(2).raw() != y.raw();
  bool adds = has_c && !is_bias;
  // The sum with C is rounded, the product before it is not.
  Tensor sum = adds && IsHalf(y.dtype()) ? Tensor::Allocate(dtype, {m, n}) : y;
  DispatchFloat(dtype, ctx.Where(), [&]<typename T>() {
    GemmProblem p = {
        .m = m, .n = n, .k = k, .c = sum.raw(), .c_dtype = ResultDType(sum)};
    p.a = {a.raw(), a.dtype(), a.dim(1), ta};
    p.b = {b.raw(), b.dtype(), b.dim(1), tb};
    p.scale = ctx.Float("alpha", 1.0f);
    if (is_bias) p.bias = ctx.In(2).raw();
    if (adds) WriteScaled<T>(ctx.In(2), beta, sum, ctx.Where());
    p.add = adds;
    Gemm(p);
  });
  if (sum.dtype() != y.dtype()) CopyBytes(ConvertTo(sum, y.dtype()), y);
}

}  // namespace

void RegisterMatMul(KernelRegistry& r) {
  r.Add("MatMul", Widened<MatMul>, {.narrow_in = {0, 1}, .narrow_out = {0}});
  r.Add("Gemm", Widened<GemmOp>,
        {.in_place = {{2, 0}},
         .adds_depth = kAddDepth,
         .narrow_in = {0, 1},
         .narrow_out = {0}});
}

}  // namespace onnx_fp8
