// SPDX-License-Identifier: Apache-2.0
//
// Ops with two or more operands that broadcast. Traffic: see broadcast.h; of
// operands of one shape, each is read once.
#include <cmath>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/register.h"

namespace onnx_fp8::cuda {
namespace {

// Integers wrap around.
template <typename T>
using Wrapping = std::conditional_t<
    std::is_same_v<T, int64_t>, uint64_t,
    std::conditional_t<std::is_same_v<T, int32_t>, uint32_t, T>>;

struct AddOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) +
                          static_cast<Wrapping<T>>(b));
  }
};
struct SubOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) -
                          static_cast<Wrapping<T>>(b));
  }
};
struct MulOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return static_cast<T>(static_cast<Wrapping<T>>(a) *
                          static_cast<Wrapping<T>>(b));
  }
};
struct DivOp {
  __device__ float operator()(float a, float b) const { return a / b; }
};
struct PowOp {
  __device__ float operator()(float a, float b) const {
    if (b == 2) return a * a;
    if (b == 3) return a * a * a;
    return powf(a, b);
  }
};
struct MaxOp {  // NaN wins
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b || a != a ? a : b;
  }
};
struct MinOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a < b || a != a ? a : b;
  }
};

struct LessOp {
  template <typename T>
  __device__ bool operator()(T a, T b) const {
    return a < b;
  }
};
struct LessOrEqualOp {
  template <typename T>
  __device__ bool operator()(T a, T b) const {
    return a <= b;
  }
};
struct GreaterOp {
  template <typename T>
  __device__ bool operator()(T a, T b) const {
    return a > b;
  }
};
struct GreaterOrEqualOp {
  template <typename T>
  __device__ bool operator()(T a, T b) const {
    return a >= b;
  }
};
struct EqualOp {
  template <typename T>
  __device__ bool operator()(T a, T b) const {
    return a == b;
  }
};

// Bools are bytes: any byte but 0 is true.
struct AndOp {
  __device__ bool operator()(uint8_t a, uint8_t b) const {
    return a != 0 && b != 0;
  }
};
struct OrOp {
  __device__ bool operator()(uint8_t a, uint8_t b) const {
    return a != 0 || b != 0;
  }
};
struct XorOp {
  __device__ bool operator()(uint8_t a, uint8_t b) const {
    return (a != 0) != (b != 0);
  }
};
struct SameOp {
  __device__ bool operator()(uint8_t a, uint8_t b) const {
    return (a != 0) == (b != 0);
  }
};

template <typename Op>
struct OfPair {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    out[0] = Op()(in[0], in[1]);
  }
};

bool IsFloatLike(DType dtype) {
  return dtype == DType::kFloat || IsHalf(dtype);
}

// Errors: one operand is a float, the other is not, or integers differ.
void CheckPair(const KernelContext& ctx, const Tensor& a, const Tensor& b) {
  if (IsFloatLike(a.dtype()) && IsFloatLike(b.dtype())) return;
  CheckSameDType(ctx, a, b);
}

template <typename Op>
void Floats(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  KeptAs(ctx, a.dtype());
  KeptAs(ctx, b.dtype());
  if (a.shape() == b.shape()) return MapElements<2, 1>(ctx, OfPair<Op>());
  MapBroadcast<float, float>(
      ctx, 0, 1, BroadcastShapes(a.shape(), b.shape(), ctx.Where()), Op());
}

template <typename Op>
void Arithmetic(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  CheckPair(ctx, a, b);
  if (IsFloatLike(a.dtype())) return Floats<Op>(ctx);
  ForNumeric(a.dtype(), ctx.Where(), [&]<typename T>() {
    MapBroadcast<T, T>(
        ctx, 0, 1, BroadcastShapes(a.shape(), b.shape(), ctx.Where()), Op());
  });
}

// The first two operands, then each of the others with what there is so far.
template <typename Op>
void Variadic(KernelContext& ctx) {
  Shape shape = Operand(ctx, 0).shape();
  for (size_t i = 1; i < ctx.num_inputs(); ++i) {
    CheckPair(ctx, ctx.In(0), Operand(ctx, i));
    shape = BroadcastShapes(shape, ctx.In(i).shape(), ctx.Where());
  }
  Check(ctx.HasOut(0), "[", ctx.Where(), "] expected a reader");
  std::vector<Tensor> in = {ctx.In(0)};
  Tensor out[] = {ctx.Out(0, ctx.In(0).dtype(), shape)};
  if (ctx.num_inputs() == 1) {
    ONNX_FP8_CUDA(cudaMemcpyAsync(out[0].raw(), in[0].raw(), in[0].bytes(),
                                  cudaMemcpyDeviceToDevice,
                                  QueueOf(ctx).stream()));
    return;
  }
  for (size_t i = 1; i < ctx.num_inputs(); ++i) {
    Tensor pair[] = {i == 1 ? in[0] : out[0], ctx.In(i)};
    KernelContext two = ctx.With(pair, out);
    ForNumeric(pair[0].dtype(), ctx.Where(), [&]<typename T>() {
      MapBroadcast<T, T>(two, 0, 1, shape, Op());
    });
  }
}

template <typename Op>
void Compare(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  CheckPair(ctx, a, b);
  ForNumeric(a.dtype(), ctx.Where(), [&]<typename T>() {
    MapBroadcast<T, bool>(
        ctx, 0, 1, BroadcastShapes(a.shape(), b.shape(), ctx.Where()), Op());
  });
}

template <typename Op>
void Logic(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  Check(a.dtype() == DType::kBool && b.dtype() == DType::kBool, "[",
        ctx.Where(), "] expected bool, got ", Name(a.dtype()), " and ",
        Name(b.dtype()));
  MapBroadcast<uint8_t, bool>(
      ctx, 0, 1, BroadcastShapes(a.shape(), b.shape(), ctx.Where()), Op());
}

void Equal(KernelContext& ctx) {
  if (Operand(ctx, 0).dtype() == DType::kBool) return Logic<SameOp>(ctx);
  Compare<EqualOp>(ctx);
}

// ---- Where

template <typename T>
__global__ void __launch_bounds__(kThreads)
    WhereKernel(Broadcast<3> b, const uint8_t* c, const T* x, const T* y,
                T* z) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= b.n) return;
  int64_t offsets[3];
  Offsets(b, at, offsets);
  z[at] = c[offsets[0]] ? x[offsets[1]] : y[offsets[2]];
}

template <typename T>
void Select(KernelContext& ctx, const Broadcast<3>& b, Tensor& z) {
  auto data = [&](size_t i) { return static_cast<const T*>(ctx.In(i).raw()); };
  Launch(WhereKernel<T>, BlocksFor(b.n), kThreads, 0, QueueOf(ctx).stream(), b,
         static_cast<const uint8_t*>(ctx.In(0).raw()), data(1), data(2),
         static_cast<T*>(z.raw()));
}

void Where(KernelContext& ctx) {
  const Tensor &c = Operand(ctx, 0), &x = Operand(ctx, 1), &y = Operand(ctx, 2);
  Check(c.dtype() == DType::kBool, "[", ctx.Where(),
        "] expected a bool condition, got ", Name(c.dtype()));
  CheckSameDType(ctx, x, y);
  Shape shape = BroadcastShapes(
      c.shape(), BroadcastShapes(x.shape(), y.shape(), ctx.Where()),
      ctx.Where());
  Tensor& z = ctx.Out(0, x.dtype(), shape);
  auto b = BroadcastOf<3>(ctx, {c.shape(), x.shape(), y.shape()}, shape);
  if (b.n == 0) return;
  switch (ByteSize(x.dtype())) {
    case 1:
      return Select<uint8_t>(ctx, b, z);
    case 2:
      return Select<uint16_t>(ctx, b, z);
    case 4:
      return Select<uint32_t>(ctx, b, z);
    default:
      return Select<uint64_t>(ctx, b, z);
  }
}

}  // namespace

void RegisterBinary(KernelRegistry& r) {
  const KernelTraits kept{.in_place = {{0, 0}, {1, 0}},
                          .measures = {0},
                          .narrow_in = {0, 1},
                          .narrow_out = {0}};
  const KernelTraits compared{.narrow_in = {0, 1}};
  r.Add("Add", Arithmetic<AddOp>, kept);
  r.Add("Sub", Arithmetic<SubOp>, kept);
  r.Add("Mul", Arithmetic<MulOp>, kept);
  r.Add("Div", Floats<DivOp>, kept);
  r.Add("Pow", Floats<PowOp>, kept);
  r.Add("Max", Variadic<MaxOp>);
  r.Add("Min", Variadic<MinOp>);
  r.Add("Sum", Variadic<AddOp>);
  r.Add("Less", Compare<LessOp>, compared);
  r.Add("LessOrEqual", Compare<LessOrEqualOp>, compared);
  r.Add("Greater", Compare<GreaterOp>, compared);
  r.Add("GreaterOrEqual", Compare<GreaterOrEqualOp>, compared);
  r.Add("Equal", Equal, compared);
  r.Add("And", Logic<AndOp>);
  r.Add("Or", Logic<OrOp>);
  r.Add("Xor", Logic<XorOp>);
  r.Add("Where", Where, {.moves = false});
}

}  // namespace onnx_fp8::cuda
