// SPDX-License-Identifier: Apache-2.0
//
// Ops with one operand, element by element. Traffic: the operand is read once,
// the result is written once.
#include <cmath>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/register.h"

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
struct SinOp {
  __device__ float operator()(float x) const { return sinf(x); }
};
struct CosOp {
  __device__ float operator()(float x) const { return cosf(x); }
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

template <typename X, typename Y, typename Op>
void MapTyped(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Out<Y> y = OutTo<Y>(ctx, 0, x.shape());
  if (x.size() == 0) return;
  Launch(UnaryKernel<Op, X, Y>, BlocksFor(x.size()), kThreads, 0,
         QueueOf(ctx).stream(), InOf<X>(ctx, 0), y, x.size(), Op());
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

}  // namespace

void RegisterUnary(KernelRegistry& r) {
  const KernelTraits kept{.in_place = {{0, 0}},
                          .measures = {0},
                          .narrow_in = {0},
                          .narrow_out = {0}};
  r.Add("Neg", Numbers<NegOp>, kept);
  r.Add("Abs", Numbers<AbsOp>, kept);
  r.Add("Sqrt", Floats<SqrtOp>, kept);
  r.Add("Reciprocal", Floats<ReciprocalOp>, kept);
  r.Add("Exp", Floats<ExpOp>, kept);
  r.Add("Log", Floats<LogOp>, kept);
  r.Add("Sin", Floats<SinOp>, kept);
  r.Add("Cos", Floats<CosOp>, kept);
  r.Add("Erf", Floats<ErfOp>, kept);
  r.Add("Floor", Floats<FloorOp>, kept);
  r.Add("Ceil", Floats<CeilOp>, kept);
  r.Add("Round", Floats<RoundOp>, kept);
  r.Add("Not", Not, {.in_place = {{0, 0}}});
  r.Add("IsNaN", IsNan, {.narrow_in = {0}});
}

}  // namespace onnx_fp8::cuda
