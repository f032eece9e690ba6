// SPDX-License-Identifier: Apache-2.0
//
// Ops with two or more operands that broadcast. Each op and dtype has one loop
// over a run (Loop below); all share the rest.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>

#include "base/saturating_cast.h"
#include "providers/cpu/elementwise.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/kernel.h"
#include "providers/ops/bits.h"
#include "providers/ops/broadcast.h"

namespace onnx_fp8 {
namespace {

// y[i] = op(a[i], b[i]) for i < n. An operand with stride 0 has one element for
// the whole run. y may be a or b.
using Loop = void (*)(const void* a, int64_t a_stride, const void* b,
                      int64_t b_stride, void* y, int64_t n);

template <typename Op, typename A, typename B, typename Y>
void RunLoop(const A* a, int64_t a_stride, const B* b, int64_t b_stride, Y* y,
             int64_t n) {
  Op op;
  if (a_stride == 0 && b_stride == 0) {
    std::fill_n(y, n, static_cast<Y>(op(*a, *b)));
  } else if (a_stride == 0) {
    A value = *a;
    ONNX_FP8_IVDEP
    for (int64_t i = 0; i < n; ++i) y[i] = op(value, b[i]);
  } else if (b_stride == 0) {
    B value = *b;
    ONNX_FP8_IVDEP
    for (int64_t i = 0; i < n; ++i) y[i] = op(a[i], value);
  } else {
    ONNX_FP8_IVDEP
    for (int64_t i = 0; i < n; ++i) y[i] = op(a[i], b[i]);
  }
}

template <typename Op, typename A, typename B, typename Y>
void LoopOf(const void* a, int64_t a_stride, const void* b, int64_t b_stride,
            void* y, int64_t n) {
  auto* pa = static_cast<const A*>(a);
  auto* pb = static_cast<const B*>(b);
  auto* py = static_cast<Y*>(y);
  if constexpr (std::is_same_v<A, float> && std::is_same_v<Y, float>) {
    OnBestIsa([=] { RunLoop<Op>(pa, a_stride, pb, b_stride, py, n); });
  } else {
    RunLoop<Op>(pa, a_stride, pb, b_stride, py, n);
  }
}

const char* Bytes(const Tensor& t) { return static_cast<const char*>(t.raw()); }

// y = loop(a, b) with broadcasting; y has its shape already.
void Broadcast(const Tensor& a, const Tensor& b, Tensor& y, Loop loop) {
  BroadcastPlan plan = PlanBroadcast({a.shape(), b.shape()}, y.shape());
  const auto& strides = plan.strides.back();
  auto a_size = static_cast<int64_t>(ByteSize(a.dtype()));
  auto b_size = static_cast<int64_t>(ByteSize(b.dtype()));
  auto y_size = static_cast<int64_t>(ByteSize(y.dtype()));
  ParallelFor(plan.n, kGrain, [&](int64_t begin, int64_t end) {
    ForRuns(plan, begin, end,
            [&](const int64_t* offsets, int64_t at, int64_t count) {
              loop(Bytes(a) + offsets[0] * a_size, strides[0],
                   Bytes(b) + offsets[1] * b_size, strides[1],
                   static_cast<char*>(y.raw()) + at * y_size, count);
            });
  });
}

// The same for floats, of which some may be kept in 16 bits, a block at a time.
// `meter` sees y.
void BroadcastBlocks(const Tensor& a, const Tensor& b, Tensor& y, Loop loop,
                     AmaxMeter& meter) {
  BroadcastPlan plan = PlanBroadcast({a.shape(), b.shape()}, y.shape());
  const auto& strides = plan.strides.back();
  StoredIn<float> from_a(a), from_b(b);
  StoredOut<float> to(y);
  ParallelFor(plan.n, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) float wide[3][kStoredBlock];
    AmaxMeter::Part part(meter);
    auto block = [&](const int64_t* offsets, int64_t done, int64_t at,
                     int64_t n) {
      auto read = [&](const StoredIn<float>& from, size_t i) {
        bool one = strides[i] == 0;
        return from.Read(offsets[i] + (one ? 0 : done), one ? 1 : n, wide[i]);
      };
      const float *pa = read(from_a, 0), *pb = read(from_b, 1);
      float* py = to.At(at, wide[2]);
      loop(pa, strides[0], pb, strides[1], py, n);
      part.Add(py, n);
      to.Write(at, n, py);
    };
    ForRuns(plan, begin, end,
            [&](const int64_t* offsets, int64_t at, int64_t count) {
              for (int64_t i = 0; i < count; i += kStoredBlock) {
                block(offsets, i, at + i, std::min(kStoredBlock, count - i));
              }
            });
  });
}

// Both operands (of one dtype), and the result with dtype `out` (kUndefined:
// the operands') and the broadcast shape.
struct Operands {
  Operands(KernelContext& ctx, DType out = DType::kUndefined)
      : a(Operand(ctx, 0)), b(Operand(ctx, 1)) {
    CheckSameDType(ctx, a, b);
    y = Result(ctx, 0, out == DType::kUndefined ? a.dtype() : out,
               BroadcastShapes(a.shape(), b.shape(), ctx.Where()));
  }
  const Tensor& a;
  const Tensor& b;
  Tensor y;
};

// Integer arithmetic wraps around. Unsigned types do that without overflow, if
// they are at least as wide as int, to which smaller ones would be promoted.
template <typename T>
auto ToWrapping(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<std::make_unsigned_t<decltype(T{} + T{})>>(x);
  } else {
    return x;
  }
}

struct AddOp {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(ToWrapping(a) + ToWrapping(b));
  }
};
struct SubOp {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(ToWrapping(a) - ToWrapping(b));
  }
};
struct MulOp {
  template <typename T>
  T operator()(T a, T b) const {
    return static_cast<T>(ToWrapping(a) * ToWrapping(b));
  }
};
// The next three REQUIRE: an integer b is not 0.
struct DivOp {
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) {
      if (b == -1) return static_cast<T>(T{0} - ToWrapping(a));
    }
    return static_cast<T>(a / b);
  }
};
struct FmodOp {  // sign of the dividend
  template <typename T>
  T operator()(T a, T b) const {
    if constexpr (std::is_integral_v<T>) {
      if constexpr (std::is_signed_v<T>) {
        if (b == -1) return 0;
      }
      return static_cast<T>(a % b);
    } else {
      return std::fmod(a, b);
    }
  }
};
struct ModOp {  // sign of the divisor
  template <typename T>
  T operator()(T a, T b) const {
    T r = FmodOp()(a, b);
    if constexpr (std::is_floating_point_v<T>) {
      if (r == 0) return std::copysign(r, b);
    }
    return r != 0 && (r < 0) != (b < 0) ? static_cast<T>(r + b) : r;
  }
};
struct MaxOp {  // NaN wins; | because || is not vectorized
  template <typename T>
  T operator()(T a, T b) const {
    return ((a > b) | (a != a)) ? a : b;
  }
};
struct MinOp {
  template <typename T>
  T operator()(T a, T b) const {
    return ((a < b) | (a != a)) ? a : b;
  }
};
struct PReluOp {
  template <typename T>
  T operator()(T x, T slope) const {
    return x < 0 ? MulOp()(x, slope) : x;
  }
};

template <typename Op>
Loop NumericLoop(const KernelContext& ctx, DType dtype) {
  Loop loop = nullptr;
  DispatchNumeric(dtype, ctx.Where(),
                  [&]<typename T>() { loop = &LoopOf<Op, T, T, T>; });
  return loop;
}

template <typename Op>
void Arithmetic(KernelContext& ctx) {
  const Tensor &a = Operand(ctx, 0), &b = Operand(ctx, 1);
  DType dtype = ComputedAs(ctx, a, b);
  Tensor y = StoredResult(ctx, 0, dtype,
                          BroadcastShapes(a.shape(), b.shape(), ctx.Where()));
  Loop loop = NumericLoop<Op>(ctx, dtype);
  AmaxMeter meter(ctx, 0);
  bool narrow = IsHalf(a.dtype()) || IsHalf(b.dtype()) || IsHalf(y.dtype());
  if (narrow || meter.on()) {
    BroadcastBlocks(a, b, y, loop, meter);
  } else {
    Broadcast(a, b, y, loop);
  }
}

// Errors: an integer 0.
void CheckDivisor(const KernelContext& ctx, const Tensor& b) {
  if (!IsInteger(b.dtype())) return;
  DispatchNumeric(b.dtype(), ctx.Where(), [&]<typename T>() {
    for (T value : b.values<T>()) {
      Check(value != 0, "[", ctx.Where(),
            "] expected integer divisors that are not 0, got 0");
    }
  });
}

void Div(KernelContext& ctx) {
  if (Operand(ctx, 0).size() > 0) CheckDivisor(ctx, Operand(ctx, 1));
  Arithmetic<DivOp>(ctx);
}

void Mod(KernelContext& ctx) {
  Operands o(ctx);
  if (o.y.size() > 0) CheckDivisor(ctx, o.b);
  bool fmod = ctx.Int("fmod", 0) != 0;
  Broadcast(o.a, o.b, o.y,
            fmod ? NumericLoop<FmodOp>(ctx, o.a.dtype())
                 : NumericLoop<ModOp>(ctx, o.a.dtype()));
}

// --- variadic ---------------------------------------------------------------

template <typename Op>
void Variadic(KernelContext& ctx) {
  const Tensor& first = Operand(ctx, 0);
  Loop loop = NumericLoop<Op>(ctx, first.dtype());
  Shape shape = first.shape();
  for (size_t i = 1; i < ctx.num_inputs(); ++i) {
    CheckSameDType(ctx, first, Operand(ctx, i));
    shape = BroadcastShapes(shape, ctx.In(i).shape(), ctx.Where());
  }
  Tensor y = Result(ctx, 0, first.dtype(), shape);
  if (ctx.num_inputs() == 1) return CopyBytes(first, y);
  // y may lie in the memory of an operand: later readers of it get a copy.
  std::vector<Tensor> rest;
  for (size_t i = 2; i < ctx.num_inputs(); ++i) {
    const Tensor& t = ctx.In(i);
    rest.push_back(t.SharesDataWith(y) ? t.Clone() : t);
  }
  Broadcast(first, ctx.In(1), y, loop);
  for (const Tensor& t : rest) Broadcast(y, t, y, loop);
}

void Mean(KernelContext& ctx) {
  DispatchFloat(Operand(ctx, 0).dtype(), ctx.Where(), []<typename T>() {});
  Variadic<AddOp>(ctx);
  if (!ctx.HasOut(0)) return;
  Tensor& y = ctx.Out(0);
  DispatchFloat(y.dtype(), ctx.Where(), [&]<typename T>() {
    auto count = static_cast<T>(ctx.num_inputs());
    Map(y.data<T>(), y.data<T>(), y.size(), [=](T v) { return v / count; });
  });
}

// --- Pow --------------------------------------------------------------------

struct PowOp {
  // Base and result are of one dtype; REQUIRES: an integer exponent of an
  // integer base is not negative. Integers wrap around.
  template <typename A, typename B>
  A operator()(A a, B b) const {
    if constexpr (std::is_floating_point_v<A>) {
      return std::pow(a, static_cast<A>(b));
    } else if constexpr (std::is_integral_v<B>) {
      A result = 1;
      for (; b > 0; b >>= 1) {
        if (b & 1) result = MulOp()(result, a);
        a = MulOp()(a, a);
      }
      return result;
    } else {
      return SaturatingCast<A>(std::pow(static_cast<double>(a), b));
    }
  }
};

// The exponents in decomposed norms and activations. False: it is none of them.
template <typename T>
bool PowByConstant(const Tensor& a, double exponent, Tensor& y) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  const T* x = a.data<T>();
  T* out = y.data<T>();
  if (exponent == 2) {
    Map(x, out, a.size(), [](T v) { return v * v; });
  } else if (exponent == 3) {
    Map(x, out, a.size(), [](T v) { return v * v * v; });
  } else if (exponent == 0.5) {
    // Unlike sqrt, pow(-0, 1/2) is +0 and pow(-infinity, 1/2) is +infinity.
    Map(x, out, a.size(),
        [](T v) { return v == -kInfinity ? kInfinity : std::sqrt(v) + T{0}; });
  } else {
    return false;
  }
  return true;
}

void Pow(KernelContext& ctx) {
  const Tensor& a = Operand(ctx, 0);
  Tensor b = Operand(ctx, 1);
  Tensor y = Result(ctx, 0, a.dtype(),
                    BroadcastShapes(a.shape(), b.shape(), ctx.Where()));
  bool float_exponent = !IsInteger(b.dtype());
  DispatchNumeric(a.dtype(), ctx.Where(), [&]<typename T>() {
    if constexpr (std::is_floating_point_v<T>) {
      if (b.size() == 1 && y.shape() == a.shape() &&
          PowByConstant<T>(a, DoubleAt(b, 0), y)) {
        return;
      }
      b = ConvertTo(b, DTypeOf<T>());
      Broadcast(a, b, y, &LoopOf<PowOp, T, T, T>);
    } else if (float_exponent) {
      b = ConvertTo(b, DType::kDouble);
      Broadcast(a, b, y, &LoopOf<PowOp, T, double, T>);
    } else {
      b = ConvertTo(b, DType::kInt64);
      for (int64_t e : b.values<int64_t>()) {
        Check(e >= 0, "[", ctx.Where(),
              "] expected an exponent >= 0 for an integer base, got ", e);
      }
      Broadcast(a, b, y, &LoopOf<PowOp, T, int64_t, T>);
    }
  });
}

void PRelu(KernelContext& ctx) {
  Operands o(ctx);
  Check(o.y.shape() == o.a.shape(), "[", ctx.Where(),
        "] expected a slope that broadcasts to ", ToString(o.a.shape()),
        ", got shape ", ToString(o.b.shape()));
  Broadcast(o.a, o.b, o.y, NumericLoop<PReluOp>(ctx, o.a.dtype()));
}

// --- comparisons, logic, bits -----------------------------------------------

template <typename Op>
void Compare(KernelContext& ctx) {
  Operands o(ctx, DType::kBool);
  Loop loop = nullptr;
  DispatchNumeric(o.a.dtype(), ctx.Where(),
                  [&]<typename T>() { loop = &LoopOf<Op, T, T, bool>; });
  Broadcast(o.a, o.b, o.y, loop);
}

// Bools are read as bytes: any byte but 0 is true, wherever it came from.
template <typename Op>
struct OnBools {
  bool operator()(uint8_t a, uint8_t b) const { return Op()(a != 0, b != 0); }
};
using XorOp = std::not_equal_to<bool>;

template <typename Op>
void Logic(KernelContext& ctx) {
  Operands o(ctx, DType::kBool);
  Check(o.a.dtype() == DType::kBool, "[", ctx.Where(), "] expected bool, got ",
        Name(o.a.dtype()));
  Broadcast(o.a, o.b, o.y, &LoopOf<OnBools<Op>, uint8_t, uint8_t, bool>);
}

void Equal(KernelContext& ctx) {
  if (Operand(ctx, 0).dtype() == DType::kBool) {
    return Logic<std::equal_to<bool>>(ctx);
  }
  Compare<std::equal_to<>>(ctx);
}

// Operations on bits work the same with and without a sign.
template <typename Op>
void Bitwise(KernelContext& ctx) {
  Operands o(ctx);
  Check(IsInteger(o.a.dtype()), "[", ctx.Where(), "] expected integers, got ",
        Name(o.a.dtype()));
  DispatchWidth(o.a.dtype(), ctx.Where(), [&]<typename T>() {
    Broadcast(o.a, o.b, o.y, &LoopOf<Op, T, T, T>);
  });
}

// On unsigned elements, whatever the sign. Shifting by the width or more, or by
// a negative number, leaves 0.
struct LeftOp {
  template <typename T>
  T operator()(T a, T b) const {
    constexpr T kBits = 8 * sizeof(T);
    return b < kBits ? static_cast<T>(static_cast<uint64_t>(a) << b) : T{0};
  }
};
struct RightOp {
  template <typename T>
  T operator()(T a, T b) const {
    constexpr T kBits = 8 * sizeof(T);
    return b < kBits ? static_cast<T>(a >> b) : T{0};
  }
};

// Arithmetic shift of a signed integer: a negative one ends as -1.
struct SignedRightOp {
  template <typename T>
  T operator()(T a, T b) const {
    constexpr T kMost = 8 * sizeof(T) - 1;
    return static_cast<T>(static_cast<std::make_signed_t<T>>(a) >>
                          std::min(b, kMost));
  }
};

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

// --- Where ------------------------------------------------------------------

template <int kXStride, int kYStride, typename T>
void Select(const uint8_t* c, const T* x, const T* y, T* z, int64_t n) {
  ONNX_FP8_IVDEP
  for (int64_t i = 0; i < n; ++i) {
    T a = x[i * kXStride];
    T b = y[i * kYStride];
    z[i] = c[i] ? a : b;
  }
}

template <typename T>
void WhereRun(const uint8_t* c, int64_t c_stride, const T* x, int64_t x_stride,
              const T* y, int64_t y_stride, T* z, int64_t n) {
  if (c_stride == 0) {
    const T* from = *c ? x : y;
    int64_t stride = *c ? x_stride : y_stride;
    ONNX_FP8_IVDEP
    for (int64_t i = 0; i < n; ++i) z[i] = from[i * stride];
  } else if (x_stride == 0) {
    y_stride == 0 ? Select<0, 0>(c, x, y, z, n) : Select<0, 1>(c, x, y, z, n);
  } else {
    y_stride == 0 ? Select<1, 0>(c, x, y, z, n) : Select<1, 1>(c, x, y, z, n);
  }
}

// x, y and z are floats, some of them kept in 16 bits.
void WhereBlocks(const BroadcastPlan& plan, const Tensor& c, const Tensor& x,
                 const Tensor& y, Tensor& z) {
  const auto& s = plan.strides.back();
  auto* pc = static_cast<const uint8_t*>(c.raw());
  StoredIn<float> from_x(x), from_y(y);
  StoredOut<float> to(z);
  ParallelFor(plan.n, kGrain, [&](int64_t begin, int64_t end) {
    alignas(64) float wide[3][kStoredBlock];
    auto read = [](const StoredIn<float>& from, int64_t offset, int64_t done,
                   int64_t stride, int64_t n, float* buffer) {
      bool one = stride == 0;
      return from.Read(offset + (one ? 0 : done), one ? 1 : n, buffer);
    };
    ForRuns(plan, begin, end, [&](const int64_t* o, int64_t at, int64_t count) {
      for (int64_t i = 0; i < count; i += kStoredBlock) {
        int64_t n = std::min(kStoredBlock, count - i);
        const float* px = read(from_x, o[1], i, s[1], n, wide[0]);
        const float* py = read(from_y, o[2], i, s[2], n, wide[1]);
        float* pz = to.At(at + i, wide[2]);
        WhereRun(pc + o[0] + i * s[0], s[0], px, s[1], py, s[2], pz, n);
        to.Write(at + i, n, pz);
      }
    });
  });
}

void Where(KernelContext& ctx) {
  const Tensor& c = Operand(ctx, 0);
  const Tensor& x = Operand(ctx, 1);
  const Tensor& y = Operand(ctx, 2);
  std::string where = ctx.Where();
  Check(c.dtype() == DType::kBool, "[", where, "] expected a bool condition, ",
        "got ", Name(c.dtype()));
  DType dtype = ComputedAs(ctx, x, y);
  Shape shape = BroadcastShapes(BroadcastShapes(c.shape(), x.shape(), where),
                                y.shape(), where);
  Tensor z = StoredResult(ctx, 0, dtype, shape);
  BroadcastPlan plan = PlanBroadcast({c.shape(), x.shape(), y.shape()}, shape);
  if (x.dtype() != y.dtype() || x.dtype() != z.dtype()) {
    return WhereBlocks(plan, c, x, y, z);
  }
  const auto& s = plan.strides.back();
  DispatchWidth(x.dtype(), where, [&]<typename T>() {
    auto* pc = static_cast<const uint8_t*>(c.raw());
    auto* px = static_cast<const T*>(x.raw());
    auto* py = static_cast<const T*>(y.raw());
    auto* pz = static_cast<T*>(z.raw());
    ParallelFor(plan.n, kGrain, [&](int64_t begin, int64_t end) {
      ForRuns(plan, begin, end, [&](const int64_t* o, int64_t at, int64_t n) {
        WhereRun<T>(pc + o[0], s[0], px + o[1], s[1], py + o[2], s[2], pz + at,
                    n);
      });
    });
  });
}

}  // namespace

void RegisterBinary(KernelRegistry& r) {
  const KernelTraits either{.in_place = {{0, 0}, {1, 0}}};
  const KernelTraits first{.in_place = {{0, 0}}};
  const KernelTraits narrow = StoredTraits(2);
  r.Add("Add", Widened<Arithmetic<AddOp>>, narrow);
  r.Add("Sub", Widened<Arithmetic<SubOp>>, narrow);
  r.Add("Mul", Widened<Arithmetic<MulOp>>, narrow);
  r.Add("Div", Widened<Div>, narrow);
  r.Add("Mod", Widened<Mod>, either);
  r.Add("Pow", Widened<Pow>, first);
  r.Add("PRelu", Widened<PRelu>, first);
  r.Add("Max", Widened<Variadic<MaxOp>>, either);
  r.Add("Min", Widened<Variadic<MinOp>>, either);
  r.Add("Sum", Widened<Variadic<AddOp>>, either);
  r.Add("Mean", Widened<Mean>, either);
  r.Add("Equal", Widened<Equal>);
  r.Add("Greater", Widened<Compare<std::greater<>>>);
  r.Add("Less", Widened<Compare<std::less<>>>);
  r.Add("GreaterOrEqual", Widened<Compare<std::greater_equal<>>>);
  r.Add("LessOrEqual", Widened<Compare<std::less_equal<>>>);
  r.Add("And", Logic<std::logical_and<bool>>, either);
  r.Add("Or", Logic<std::logical_or<bool>>, either);
  r.Add("Xor", Logic<XorOp>, either);
  r.Add("BitwiseAnd", Bitwise<std::bit_and<>>, either);
  r.Add("BitwiseOr", Bitwise<std::bit_or<>>, either);
  r.Add("BitwiseXor", Bitwise<std::bit_xor<>>, either);
  r.Add("BitShift", BitShift, either);
  r.Add("Where", Widened<Where>,
        {.in_place = {{1, 0}, {2, 0}}, .narrow_in = {1, 2}, .narrow_out = {0}});
}

}  // namespace onnx_fp8
