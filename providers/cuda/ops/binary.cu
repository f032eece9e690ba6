// SPDX-License-Identifier: Apache-2.0
//
// Ops with two or more operands that broadcast. Traffic: see broadcast.h; of
// operands of one shape, each is read once.
#include <cmath>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/complain.h"
#include "providers/cuda/ops/convert.h"
#include "providers/kernel.h"
#include "providers/ops/bits.h"
#include "providers/ops/for_width.h"

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
struct PReluOp {
  template <typename T>
  __device__ T operator()(T x, T slope) const {
    return x < 0 ? MulOp()(x, slope) : x;
  }
};
struct FmodOp {  // sign of the dividend; exact
  __device__ float operator()(float a, float b) const { return fmodf(a, b); }
};
struct ModOp {  // sign of the divisor
  __device__ float operator()(float a, float b) const {
    float r = fmodf(a, b);
    if (r == 0) return copysignf(r, b);
    return (r < 0) != (b < 0) ? r + b : r;
  }
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

// ---- integer division

// A divisor of 0 is reported, and gives 0.
struct Divisors {
  Complaint* complaint;
  uint32_t message;

  template <typename T>
  __device__ bool Accept(T b) const {
    if (b == 0) Complain(complaint, message, 0);
    return b != 0;
  }
};

struct IntDivOp {
  Divisors divisors;
  template <typename T>
  __device__ T operator()(T a, T b) const {
    if (!divisors.Accept(b)) return 0;
    return b == -1 ? SubOp()(T{0}, a) : a / b;
  }
};
struct IntModOp {
  Divisors divisors;
  bool of_dividend;  // the sign is the dividend's, else the divisor's
  template <typename T>
  __device__ T operator()(T a, T b) const {
    if (!divisors.Accept(b) || b == -1) return 0;
    T r = a % b;
    return !of_dividend && r != 0 && (r < 0) != (b < 0) ? r + b : r;
  }
};

// ---- comparisons, logic, bits

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

struct BitAndOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a & b;
  }
};
struct BitOrOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a | b;
  }
};
struct BitXorOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a ^ b;
  }
};
// On unsigned elements, whatever the sign. Shifting by the width or more, or by
// a negative number, leaves 0.
struct LeftOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < 8 * sizeof(T) ? static_cast<uint64_t>(a) << b : 0;
  }
};
struct RightOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return b < 8 * sizeof(T) ? static_cast<uint64_t>(a) >> b : 0;
  }
};
// Arithmetic shift of a signed integer: a negative one ends as -1.
struct SignedRightOp {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    constexpr T kMost = 8 * sizeof(T) - 1;
    return static_cast<std::make_signed_t<T>>(a) >> (b < kMost ? b : kMost);
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
  StorageOf(ctx, a.dtype());
  StorageOf(ctx, b.dtype());
  MapBroadcast<float, float>(
      ctx, 0, 1, BroadcastShapes(a.shape(), b.shape(), ctx.Where()), Op());
}

Shape SharedShape(const KernelContext& ctx) {
  return BroadcastShapes(Operand(ctx, 0).shape(), Operand(ctx, 1).shape(),
                         ctx.Where());
}

template <typename Op>
void Integers(KernelContext& ctx, Op op) {
  CheckSameDType(ctx, Operand(ctx, 0), Operand(ctx, 1));
  Shape shape = SharedShape(ctx);
  if (ctx.In(0).dtype() == DType::kInt32) {
    return MapBroadcast<int32_t, int32_t>(ctx, 0, 1, shape, op);
  }
  Check(ctx.In(0).dtype() == DType::kInt64, "[", ctx.Where(),
        "] expected float, int64 or int32 on the GPU, got ",
        Name(ctx.In(0).dtype()));
  MapBroadcast<int64_t, int64_t>(ctx, 0, 1, shape, op);
}

Divisors DivisorsOf(const KernelContext& ctx) {
  Queue& queue = QueueOf(ctx);
  return {queue.complaint(),
          queue.MessageNumber(
              Concat("[", ctx.Where(),
                     "] expected integer divisors that are not 0, got "))};
}

void Div(KernelContext& ctx) {
  if (!IsInteger(Operand(ctx, 0).dtype())) return Floats<DivOp>(ctx);
  Integers(ctx, IntDivOp{DivisorsOf(ctx)});
}

void Mod(KernelContext& ctx) {
  bool fmod = ctx.Int("fmod", 0) != 0;
  if (IsInteger(Operand(ctx, 0).dtype())) {
    return Integers(ctx, IntModOp{DivisorsOf(ctx), fmod});
  }
  fmod ? Floats<FmodOp>(ctx) : Floats<ModOp>(ctx);
}

// Room for an exponent of integers as floats.
size_t PowWorkspace(KernelContext& ctx) {
  const Tensor& b = Operand(ctx, 1);
  if (!IsInteger(b.dtype())) return 0;
  return static_cast<size_t>(b.size()) * sizeof(float);
}

// An exponent may be an integer.
void Pow(KernelContext& ctx) {
  const Tensor& b = Operand(ctx, 1);
  if (!IsInteger(b.dtype())) return Floats<PowOp>(ctx);
  Queue& queue = QueueOf(ctx);
  void* floats = ctx.Workspace(PowWorkspace(ctx));
  Convert(queue, ctx.Where(), b.raw(), b.dtype(), floats, DType::kFloat,
          b.size());
  const Tensor in[] = {
      Operand(ctx, 0),
      Tensor::View(DType::kFloat, b.shape(), nullptr, floats, b.device())};
  Tensor out[] = {ctx.Out(0, ctx.In(0).dtype(), SharedShape(ctx))};
  KernelContext with_floats = ctx.With(in, out);
  Floats<PowOp>(with_floats);
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

// Operands of one shape, in their order; the first ones may be the result so
// far.
template <typename T>
struct Folded {
  static constexpr int kMost = 128;
  const T* in[kMost];
  int count;
  int64_t n;
  T* out;
};

template <typename Op, typename T>
__global__ void __launch_bounds__(kThreads) FoldKernel(Folded<T> f, Op op) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= f.n) return;
  T result = f.in[0][at];
  for (int i = 1; i < f.count; ++i) result = op(result, f.in[i][at]);
  f.out[at] = result;
}

// One pass over many operands. REQUIRES: all have the result's type.
template <typename Op, typename T>
void Fold(const KernelContext& ctx, Tensor& y) {
  if (y.size() == 0) return;
  Folded<T> f = {{}, 0, y.size(), static_cast<T*>(y.raw())};
  for (size_t i = 0; i < ctx.num_inputs(); ++i) {
    f.in[f.count++] = static_cast<const T*>(ctx.In(i).raw());
    bool last = i + 1 == ctx.num_inputs();
    if (f.count < Folded<T>::kMost && !last) continue;
    Launch(FoldKernel<Op, T>, BlocksFor(f.n), kThreads, 0,
           QueueOf(ctx).stream(), f, Op());
    f.in[0] = f.out;
    f.count = 1;
  }
}

bool AllAlike(const KernelContext& ctx) {
  for (size_t i = 1; i < ctx.num_inputs(); ++i) {
    if (ctx.In(i).dtype() != ctx.In(0).dtype() ||
        ctx.In(i).shape() != ctx.In(0).shape()) {
      return false;
    }
  }
  return !IsHalf(ctx.In(0).dtype());
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
                                  cudaMemcpyDefault, QueueOf(ctx).stream()));
    return;
  }
  if (AllAlike(ctx)) {
    return ForNumeric(in[0].dtype(), ctx.Where(),
                      [&]<typename T>() { Fold<Op, T>(ctx, out[0]); });
  }
  for (size_t i = 1; i < ctx.num_inputs(); ++i) {
    Tensor pair[] = {i == 1 ? in[0] : out[0], ctx.In(i)};
    KernelContext two = ctx.With(pair, out);
    ForNumeric(pair[0].dtype(), ctx.Where(), [&]<typename T>() {
      MapBroadcast<T, T>(two, 0, 1, shape, Op());
    });
  }
}

struct DivideBy {
  float count;
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    out[0] = in[0] / count;
  }
};

// Traffic: the sum is read and written once more.
void Mean(KernelContext& ctx) {
  StorageOf(ctx, Operand(ctx, 0).dtype());
  Variadic<AddOp>(ctx);
  const Tensor sum[] = {ctx.Out(0)};
  Tensor mean[] = {ctx.Out(0)};
  KernelContext last = ctx.With(sum, mean);
  MapElements<1, 1>(last, DivideBy{static_cast<float>(ctx.num_inputs())});
}

void PRelu(KernelContext& ctx) {
  Check(SharedShape(ctx) == ctx.In(0).shape(), "[", ctx.Where(),
        "] expected a slope that broadcasts to ", ToString(ctx.In(0).shape()),
        ", got shape ", ToString(ctx.In(1).shape()));
  Arithmetic<PReluOp>(ctx);
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

// Operations on bits work the same with and without a sign.
template <typename Op>
void Bitwise(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  CheckSameDType(ctx, a, b);
  Check(IsInteger(a.dtype()), "[", ctx.Where(), "] expected integers, got ",
        Name(a.dtype()));
  Tensor& y = ctx.Out(0, a.dtype(), SharedShape(ctx));
  auto walk = BroadcastOf<2>(ctx, {a.shape(), b.shape()}, y.shape());
  if (walk.n == 0) return;
  ForWidth(ByteSize(a.dtype()), [&]<typename T>() {
    Launch(BinaryKernel<Op, T, T>, BlocksFor(walk.n), kThreads, 0,
           QueueOf(ctx).stream(), walk, In<T>{static_cast<const T*>(a.raw())},
           In<T>{static_cast<const T*>(b.raw())},
           Out<T>{static_cast<T*>(y.raw())}, nullptr, Op());
  });
}

void BitShift(KernelContext& ctx) {
  switch (ShiftOf(ctx)) {
    case Shift::kLeft:
      return Bitwise<LeftOp>(ctx);
    case Shift::kRight:
      return Bitwise<RightOp>(ctx);
    case Shift::kSignedRight:
      return Bitwise<SignedRightOp>(ctx);
  }
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
  r.Add("Div", Div, kept);
  r.Add("Mod", Mod, kept);
  KernelTraits pow = kept;
  pow.workspace = PowWorkspace;
  r.Add("Pow", Pow, pow);
  r.Add("PRelu", PRelu, kept);
  r.Add("Max", Variadic<MaxOp>);
  r.Add("Min", Variadic<MinOp>);
  r.Add("Sum", Variadic<AddOp>);
  r.Add("Mean", Mean);
  r.Add("Less", Compare<LessOp>, compared);
  r.Add("LessOrEqual", Compare<LessOrEqualOp>, compared);
  r.Add("Greater", Compare<GreaterOp>, compared);
  r.Add("GreaterOrEqual", Compare<GreaterOrEqualOp>, compared);
  r.Add("Equal", Equal, compared);
  r.Add("And", Logic<AndOp>);
  r.Add("Or", Logic<OrOp>);
  r.Add("Xor", Logic<XorOp>);
  r.Add("BitwiseAnd", Bitwise<BitAndOp>);
  r.Add("BitwiseOr", Bitwise<BitOrOp>);
  r.Add("BitwiseXor", Bitwise<BitXorOp>);
  r.Add("BitShift", BitShift);
  r.Add("Where", Where, {.moves = false});
}

}  // namespace onnx_fp8::cuda
