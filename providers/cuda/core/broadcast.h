// SPDX-License-Identifier: Apache-2.0
//
// Ops on operands that broadcast. If all operands are floats and their vectors
// are aligned, a thread computes several vectors of the result; else it
// computes one element. Traffic: each operand is read as often as it is
// repeated, mostly from a cache; the result is written once.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/rows.h"
#include "providers/ops/broadcast.h"

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
    switch (x.x.storage) {
      case Storage::kBFloat16:
        return fn(In<float>{{x.x.data, Storage::kBFloat16}});
      case Storage::kFloat16:
        return fn(In<float>{{x.x.data, Storage::kFloat16}});
      default:
        return fn(In<float>{{x.x.data, Storage::kFloat}});
    }
  } else {
    fn(x);
  }
}

// kEach elements side by side: 4, which are aligned, or 1.
template <int kEach, typename T>
__device__ void LoadElements(const In<T>& x, int64_t at, T (&to)[kEach]) {
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
  seen.AddOfBlock(amax);
}

// Elements at … at+3, or element `at` alone if the operand is repeated.
__device__ inline Vector LoadFourOrOne(FloatsIn x, bool repeated, int64_t at) {
  if (!repeated) return LoadVector4(x, at);
  if (x.storage == Storage::kFloat)
    return {static_cast<const uint32_t*>(x.data)[at]};
  return {static_cast<const uint16_t*>(x.data)[at]};
}

__device__ inline void FourFloatsOf(Storage storage, bool repeated,
                                    const Vector& raw,
                                    float (&to)[kPerThread]) {
  ToFloats(storage, raw, to);
  if (!repeated) return;
  for (int k = 1; k < kPerThread; ++k) to[k] = to[0];
}

// b walks over vectors of n elements; strides count elements. All loads start
// before the first result is computed. kNarrow: operands and the result are
// kept as bfloat16.
template <bool kNarrow, typename Op>
__global__ void __launch_bounds__(kThreads)
    BinaryVectorsKernel(Broadcast<2> b, int64_t n, FloatsIn of_x, FloatsIn of_y,
                        FloatsOut of_z, DeviceAmax* amax, Op op) {
  const FloatsIn x = Known<kNarrow>(of_x), y = Known<kNarrow>(of_y);
  const FloatsOut z = Known<kNarrow>(of_z);
  bool one_x = b.strides[0][b.axes - 1] == 0;
  bool one_y = b.strides[1][b.axes - 1] == 0;
  int64_t first = blockIdx.x * kPerBlock + threadIdx.x;
  Vector xs[kAtOnce], ys[kAtOnce];
  AmaxPart seen;
  ONNX_FP8_UNROLL
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t at = first + v * kThreads, offsets[2];
    if ((at + 1) * kPerThread > n) continue;
    if (b.axes == 1) {
      offsets[0] = at * b.strides[0][0];
      offsets[1] = at * b.strides[1][0];
    } else {
      Offsets(b, at, offsets);
    }
    xs[v] = LoadFourOrOne(x, one_x, offsets[0]);
    ys[v] = LoadFourOrOne(y, one_y, offsets[1]);
  }
  ONNX_FP8_UNROLL
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t at = (first + v * kThreads) * kPerThread;
    if (at + kPerThread > n) continue;
    float in_x[kPerThread], in_y[kPerThread], out[kPerThread];
    FourFloatsOf(x.storage, one_x, xs[v], in_x);
    FourFloatsOf(y.storage, one_y, ys[v], in_y);
    for (int k = 0; k < kPerThread; ++k) out[k] = op(in_x[k], in_y[k]);
    Store4(z, at, out);
    if (amax) seen.Add4(out);
  }
  // Only a walk along one axis has a rest.
  int64_t rest = n / kPerThread * kPerThread + threadIdx.x;
  if (blockIdx.x + 1 == gridDim.x && rest < n) {
    float value = op(Load(x, one_x ? 0 : rest), Load(y, one_y ? 0 : rest));
    seen.Add(Store(z, rest, value));
  }
  seen.AddOfBlock(amax);
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

// Makes b walk over vectors of the result. False if vectors of an operand are
// not aligned, or end within one.
inline bool ToVectors(Broadcast<2>& b) {
  int last = b.axes - 1;
  if (b.axes > 1 && b.sizes[last] % kPerThread != 0) return false;
  for (auto& strides : b.strides) {
    for (int a = 0; a < last; ++a) {
      if (strides[last] != 0 && strides[a] % kPerThread != 0) return false;
    }
  }
  b.n = DivideUp(b.n, kPerThread);
  b.sizes[last] = DivideUp(b.sizes[last], kPerThread);
  for (auto& strides : b.strides) strides[last] *= kPerThread;
  return true;
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
  if constexpr (std::is_same_v<A, float> && std::is_same_v<Y, float>) {
    if (!out.y.data) return;
    if (int64_t n = b.n; ToVectors(b)) {
      auto blocks = static_cast<unsigned>(DivideUp(b.n, kPerBlock));
      FloatsIn x = FloatsOf(ctx, i), y = FloatsOf(ctx, j);
      bool narrow = AreBFloat16({x, y, AsOperand(out.y)});
      return Launch(narrow ? BinaryVectorsKernel<true, Op>
                           : BinaryVectorsKernel<false, Op>,
                    blocks, kThreads, 0, QueueOf(ctx).stream(), b, n, x, y,
                    out.y, amax, op);
    }
  }
  Launch(BinaryKernel<Op, A, Y>, BlocksFor(b.n), kThreads, 0,
         QueueOf(ctx).stream(), b, InOf<A>(ctx, i), InOf<A>(ctx, j), out, amax,
         op);
}

// fn.operator()<T>() with the type of `dtype`; float for 16-bit floats, which
// the plan keeps of floats. Errors: another dtype; `where` names the node.
template <typename Where, typename Fn>
void ForNumeric(DType dtype, const Where& where, Fn fn) {
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
