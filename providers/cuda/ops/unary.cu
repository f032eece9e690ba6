// SPDX-License-Identifier: Apache-2.0
//
// Ops with one operand, element by element. Traffic: the operand is read once,
// the result is written once. Functions are the toolkit's: errors of a few ulp.
#include <cmath>
#include <limits>

#include "providers/cuda/core/broadcast.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {
namespace {

struct NegOp {
  __device__ float operator()(float x) const { return -x; }
  __device__ int64_t operator()(int64_t x) const {
    return static_cast<int64_t>(0 - static_cast<uint64_t>(x));
  }
  __device__ int32_t operator()(int32_t x) const {
    return static_cast<int32_t>(0 - static_cast<uint32_t>(x));
  }
};
struct AbsOp {
  __device__ float operator()(float x) const { return fabsf(x); }
  template <typename T>
  __device__ T operator()(T x) const {
    return x < 0 ? NegOp()(x) : x;
  }
};
struct SignOp {  // NaN stays
  template <typename T>
  __device__ T operator()(T x) const {
    return x > 0 ? T{1} : x < 0 ? T{-1} : x != x ? x : T{0};
  }
};
struct SqrtOp {
  __device__ float operator()(float x) const { return sqrtf(x); }
};
struct ReciprocalOp {
  __device__ float operator()(float x) const { return 1 / x; }
};
struct ExpOp {
  __device__ float operator()(float x) const { return expf(x); }
};
struct LogOp {
  __device__ float operator()(float x) const { return logf(x); }
};
struct ErfOp {
  __device__ float operator()(float x) const { return erff(x); }
};
struct FloorOp {
  __device__ float operator()(float x) const { return floorf(x); }
};
struct CeilOp {
  __device__ float operator()(float x) const { return ceilf(x); }
};
struct RoundOp {  // ties to even
  __device__ float operator()(float x) const { return rintf(x); }
};
struct NotOp {
  __device__ bool operator()(uint8_t x) const { return x == 0; }
};
struct IsNanOp {
  __device__ bool operator()(float x) const { return x != x; }
};
struct IsInfOp {
  bool negative, positive;
  __device__ bool operator()(float x) const {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return (positive && x == kInfinity) || (negative && x == -kInfinity);
  }
};
struct BitwiseNotOp {
  __device__ uint8_t operator()(uint8_t x) const {
    return static_cast<uint8_t>(~x);
  }
};

template <typename Op>
struct OfOne {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = Op()(in[0]);
  }
};

template <typename Op>
void Floats(KernelContext& ctx) {
  MapElements<1, 1>(ctx, OfOne<Op>());
}

// Functions of the circle and of the hyperbola. Their code is long, and no
// model spends its time there: one kernel computes them all.
enum class Circle {
  kSin,
  kCos,
  kTan,
  kAsin,
  kAcos,
  kAtan,
  kSinh,
  kCosh,
  kAsinh,
  kAcosh,
  kAtanh,
};

__device__ __attribute__((noinline)) float ValueOf(Circle function, float x) {
  switch (function) {
    case Circle::kSin:
      return sinf(x);
    case Circle::kCos:
      return cosf(x);
    case Circle::kTan:
      return tanf(x);
    case Circle::kAsin:
      return asinf(x);
    case Circle::kAcos:
      return acosf(x);
    case Circle::kAtan:
      return atanf(x);
    case Circle::kSinh:
      return sinhf(x);
    case Circle::kCosh:
      return coshf(x);
    case Circle::kAsinh:
      return asinhf(x);
    case Circle::kAcosh:
      return acoshf(x);
    case Circle::kAtanh:
      return atanhf(x);
  }
  return 0;
}

struct CircleOp {
  Circle function;
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = ValueOf(function, in[0]);
  }
};

template <Circle kFunction>
void OfCircle(KernelContext& ctx) {
  MapElements<1, 1>(ctx, CircleOp{kFunction});
}

template <typename X, typename Y, typename Op>
void MapTyped(KernelContext& ctx, Op op = {}) {
  const Tensor& x = Operand(ctx, 0);
  Out<Y> y = OutTo<Y>(ctx, 0, x.shape());
  if (x.size() == 0) return;
  Launch(UnaryKernel<Op, X, Y>, BlocksFor(x.size()), kThreads, 0,
         QueueOf(ctx).stream(), InOf<X>(ctx, 0), y, x.size(), op);
}

template <typename Op>
void Numbers(KernelContext& ctx) {
  DType dtype = Operand(ctx, 0).dtype();
  if (dtype == DType::kInt64) return MapTyped<int64_t, int64_t, Op>(ctx);
  if (dtype == DType::kInt32) return MapTyped<int32_t, int32_t, Op>(ctx);
  Floats<Op>(ctx);
}

void Not(KernelContext& ctx) {
  DType dtype = Operand(ctx, 0).dtype();
  Check(dtype == DType::kBool, "[", ctx.Where(), "] expected bool, got ",
        Name(dtype));
  MapTyped<uint8_t, bool, NotOp>(ctx);
}

void IsNan(KernelContext& ctx) { MapTyped<float, bool, IsNanOp>(ctx); }

void IsInf(KernelContext& ctx) {
  MapTyped<float, bool, IsInfOp>(ctx, {ctx.Int("detect_negative", 1) != 0,
                                       ctx.Int("detect_positive", 1) != 0});
}

void BitwiseNot(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(IsInteger(x.dtype()), "[", ctx.Where(), "] expected integers, got ",
        Name(x.dtype()));
  Tensor& y = ctx.Out(0, x.dtype(), x.shape());
  auto bytes = static_cast<int64_t>(x.bytes());
  if (bytes == 0) return;
  Launch(UnaryKernel<BitwiseNotOp, uint8_t, uint8_t>, BlocksFor(bytes),
         kThreads, 0, QueueOf(ctx).stream(),
         In<uint8_t>{static_cast<const uint8_t*>(x.raw())},
         Out<uint8_t>{static_cast<uint8_t*>(y.raw())}, bytes, BitwiseNotOp());
}

}  // namespace

void RegisterUnary(KernelRegistry& r) {
  const KernelTraits kept{.in_place = {{0, 0}},
                          .measures = {0},
                          .narrow_in = {0},
                          .narrow_out = {0}};
  r.Add("Neg", Numbers<NegOp>, kept);
  r.Add("Abs", Numbers<AbsOp>, kept);
  r.Add("Sign", Numbers<SignOp>, kept);
  r.Add("Sqrt", Floats<SqrtOp>, kept);
  r.Add("Reciprocal", Floats<ReciprocalOp>, kept);
  r.Add("Exp", Floats<ExpOp>, kept);
  r.Add("Log", Floats<LogOp>, kept);
  r.Add("Sin", OfCircle<Circle::kSin>, kept);
  r.Add("Cos", OfCircle<Circle::kCos>, kept);
  r.Add("Tan", OfCircle<Circle::kTan>, kept);
  r.Add("Asin", OfCircle<Circle::kAsin>, kept);
  r.Add("Acos", OfCircle<Circle::kAcos>, kept);
  r.Add("Atan", OfCircle<Circle::kAtan>, kept);
  r.Add("Sinh", OfCircle<Circle::kSinh>, kept);
  r.Add("Cosh", OfCircle<Circle::kCosh>, kept);
  r.Add("Asinh", OfCircle<Circle::kAsinh>, kept);
  r.Add("Acosh", OfCircle<Circle::kAcosh>, kept);
  r.Add("Atanh", OfCircle<Circle::kAtanh>, kept);
  r.Add("Erf", Floats<ErfOp>, kept);
  r.Add("Floor", Floats<FloorOp>, kept);
  r.Add("Ceil", Floats<CeilOp>, kept);
  r.Add("Round", Floats<RoundOp>, kept);
  r.Add("Not", Not, {.in_place = {{0, 0}}});
  r.Add("BitwiseNot", BitwiseNot, {.in_place = {{0, 0}}});
  r.Add("IsNaN", IsNan, {.narrow_in = {0}});
  r.Add("IsInf", IsInf, {.narrow_in = {0}});
}

}  // namespace onnx_fp8::cuda
