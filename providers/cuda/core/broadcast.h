// SPDX-License-Identifier: Apache-2.0
//
// Ops on operands that broadcast, one element of the result per thread.
// Traffic: each operand is read as often as it is repeated, mostly from a
// cache; the result is written once.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "providers/broadcast.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/rows.h"

namespace onnx_fp8::cuda {

inline constexpr int kMostAxes = 8;

// Where the operands of an element of the result lie.
template <int kIn>
struct Broadcast {
  int axes;
  int64_t n;
  int64_t sizes[kMostAxes];
  int64_t strides[kIn][kMostAxes];
};

// Errors: more axes that can't be merged than the kernels take.
template <int kIn>
Broadcast<kIn> BroadcastOf(const KernelContext& ctx,
                           const std::vector<Shape>& operands,
                           const Shape& result) {
  BroadcastPlan plan = PlanBroadcast(operands, result);
  Check(plan.sizes.size() <= kMostAxes, "[", ctx.Where(), "] expected at most ",
        kMostAxes, " axes that can't be merged, got ", plan.sizes.size());
  Broadcast<kIn> b = {static_cast<int>(plan.sizes.size()), plan.n, {}, {}};
  for (size_t a = 0; a < plan.sizes.size(); ++a) {
    b.sizes[a] = plan.sizes[a];
    for (int k = 0; k < kIn; ++k) {
      b.strides[k][a] = plan.strides[a][static_cast<size_t>(k)];
    }
  }
  return b;
}

// REQUIRES: 0 <= at < n.
template <int kIn>
__device__ void Offsets(const Broadcast<kIn>& b, int64_t at,
                        int64_t (&offsets)[kIn]) {
  for (int64_t& offset : offsets) offset = 0;
  ONNX_FP8_KEEP_LOOP
  for (int a = b.axes - 1; a >= 0; --a) {
    int64_t rest = a > 0 ? Quotient(at, b.sizes[a]) : 0;
    int64_t index = at - rest * b.sizes[a];
    at = rest;
    for (int k = 0; k < kIn; ++k) offsets[k] += index * b.strides[k][a];
  }
}

// Elements of type T. Floats may be kept in 16 bits.
template <typename T>
struct In {
  const T* data;
  __device__ T At(int64_t i) const { return data[i]; }
};
template <>
struct In<float> {
  FloatsIn x;
  __device__ float At(int64_t i) const { return Load(x, i); }
};

// fn(x), of which the loops know how floats are kept.
template <typename T, typename Fn>
__device__ void WithKnownKind(const In<T>& x, Fn fn) {
  if constexpr (std::is_same_v<T, float>) {
    switch (x.x.kept) {
      case Kept::kBFloat16:
        return fn(In<float>{{x.x.data, Kept::kBFloat16}});
      case Kept::kFloat16:
        return fn(In<float>{{x.x.data, Kept::kFloat16}});
      default:
        return fn(In<float>{{x.x.data, Kept::kFloat}});
    }
  } else {
    fn(x);
  }
}

// kEach elements side by side: 4, which are aligned, or 1.
template <int kEach, typename T>
__device__ void LoadEach(const In<T>& x, int64_t at, T (&to)[kEach]) {
  if constexpr (kEach == 4) {
    Load4(x.x, at, to);
  } else {
    to[0] = x.At(at);
  }
}

template <typename T>
struct Out {
  T* data;
  __device__ void Put(int64_t i, T v, AmaxPart&) const { data[i] = v; }
};
template <>
struct Out<float> {
  FloatsOut y;
  __device__ void Put(int64_t i, float v, AmaxPart& seen) const {
    seen.Add(Store(y, i, v));
  }
};

template <typename T>
In<T> InOf(const KernelContext& ctx, size_t i) {
  if constexpr (std::is_same_v<T, float>) {
    return {FloatsOf(ctx, i)};
  } else {
    return {static_cast<const T*>(Operand(ctx, i).raw())};
  }
}

template <typename T>
Out<T> OutTo(KernelContext& ctx, size_t i, const Shape& shape) {
  if constexpr (std::is_same_v<T, float>) {
    return {FloatsTo(ctx, i, shape)};
  } else {
    return {static_cast<T*>(ctx.Out(i, DTypeOf<T>(), shape).raw())};
  }
}

namespace {

template <typename Op, typename A, typename Y>
__global__ void __launch_bounds__(kThreads)
    BinaryKernel(Broadcast<2> b, In<A> x, In<A> y, Out<Y> z, DeviceAmax* amax,
                 Op op) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  AmaxPart seen;
  if (at < b.n) {
    int64_t offsets[2];
    Offsets(b, at, offsets);
    z.Put(at, static_cast<Y>(op(x.At(offsets[0]), y.At(offsets[1]))), seen);
  }
  seen.AddTo(amax);
}

template <typename Op, typename X, typename Y>
__global__ void __launch_bounds__(kThreads)
    UnaryKernel(In<X> x, Out<Y> y, int64_t n, Op op) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  AmaxPart unused;
  if (at < n) y.Put(at, static_cast<Y>(op(x.At(at))), unused);
}

}  // namespace

inline unsigned BlocksFor(int64_t n) {
  return static_cast<unsigned>(DivideUp(n, kThreads));
}

// Result 0 = op(operand i, operand j), broadcast to `shape`.
template <typename A, typename Y, typename Op>
void MapBroadcast(KernelContext& ctx, size_t i, size_t j, const Shape& shape,
                  Op op) {
  auto b = BroadcastOf<2>(
      ctx, {Operand(ctx, i).shape(), Operand(ctx, j).shape()}, shape);
  Out<Y> out = OutTo<Y>(ctx, 0, shape);
  DeviceAmax* amax = ClearedAmax(ctx, 0);
  if (b.n == 0) return;
  Launch(BinaryKernel<Op, A, Y>, BlocksFor(b.n), kThreads, 0,
         QueueOf(ctx).stream(), b, InOf<A>(ctx, i), InOf<A>(ctx, j), out, amax,
         op);
}

// fn.operator()<T>() with the type of `dtype`; float for 16-bit floats, which
// the plan keeps of floats. Errors: another dtype; `where` names the node.
template <typename Fn>
void ForNumeric(DType dtype, const std::string& where, Fn fn) {
  switch (dtype) {
    case DType::kFloat:
    case DType::kBFloat16:
    case DType::kFloat16:
      return fn.template operator()<float>();
    case DType::kInt64:
      return fn.template operator()<int64_t>();
    case DType::kInt32:
      return fn.template operator()<int32_t>();
    default:
      Fail("[", where, "] expected float, int64 or int32 on the GPU, got ",
           Name(dtype));
  }
}

}  // namespace onnx_fp8::cuda
