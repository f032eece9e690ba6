// SPDX-License-Identifier: Apache-2.0
//
// Ops with one operand, element by element.
#include <cmath>
#include <limits>
#include <type_traits>

#include "providers/cpu/elementwise.h"
#include "providers/cpu/math/elementary.h"
#include "providers/kernel.h"

namespace onnx_fp8 {
namespace {

// Output 0 = f(input 0) for all numeric dtypes; f is generic.
template <typename F>
void NumericMap(KernelContext& ctx, F f) {
  const Tensor& x = Operand(ctx, 0);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchNumeric(x.dtype(), ctx.Where(), [&]<typename T>() {
    if constexpr (std::is_floating_point_v<T>) {
      Map(x.data<T>(), y.data<T>(), x.size(), f);
    } else {
      MapScalar(x.data<T>(), y.data<T>(), x.size(), f);
    }
  });
}

// The same for float and double, by a function of the C++ library, which GCC
// does not vectorize.
template <typename F>
void LibraryMap(KernelContext& ctx, F f) {
  const Tensor& x = Operand(ctx, 0);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    MapScalar(x.data<T>(), y.data<T>(), x.size(), f);
  });
}

// -x in the type's own width; the smallest integer is its own negative.
template <typename T>
T Negative(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(uint64_t{0} - static_cast<uint64_t>(x));
  } else {
    return -x;
  }
}

void Neg(KernelContext& ctx) {
  NumericMap(ctx, [](auto x) { return Negative(x); });
}
void Abs(KernelContext& ctx) {
  NumericMap(ctx, [](auto x) {
    if constexpr (std::is_floating_point_v<decltype(x)>) {
      return std::fabs(x);
    } else {
      return x < 0 ? Negative(x) : x;
    }
  });
}
void Sign(KernelContext& ctx) {
  NumericMap(ctx, [](auto x) {
    using T = decltype(x);
    T y = x > 0 ? T{1} : T{0};
    if constexpr (std::is_signed_v<T> || std::is_floating_point_v<T>) {
      y = x < 0 ? T{-1} : y;
    }
    return x != x ? x : y;
  });
}

void Sqrt(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return std::sqrt(x); });
}
void Reciprocal(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return decltype(x){1} / x; });
}
void Floor(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return std::floor(x); });
}
void Ceil(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return std::ceil(x); });
}
void Round(KernelContext& ctx) {  // ties to even: the FPU's default
  FloatMap(ctx, [](auto x) { return std::nearbyint(x); });
}
void Exp(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return math::Exp(x); });
}
void Log(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return math::Log(x); });
}
void Erf(KernelContext& ctx) {
  FloatMap(ctx, [](auto x) { return math::Erf(x); });
}

void Sin(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::sin(x); });
}
void Cos(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::cos(x); });
}
void Tan(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::tan(x); });
}
void Asin(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::asin(x); });
}
void Acos(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::acos(x); });
}
void Atan(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::atan(x); });
}
void Sinh(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::sinh(x); });
}
void Cosh(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::cosh(x); });
}
void Asinh(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::asinh(x); });
}
void Acosh(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::acosh(x); });
}
void Atanh(KernelContext& ctx) {
  LibraryMap(ctx, [](auto x) { return std::atanh(x); });
}

// --- predicates, bits -------------------------------------------------------

// Output 0 (bool) = f(input 0) for all float dtypes, 8-bit ones included.
template <typename F>
void Predicate(KernelContext& ctx, F f) {
  Tensor x = Operand(ctx, 0);
  Check(IsFloat(x.dtype()) || IsFloat8(x.dtype()), "[", ctx.Where(),
        "] expected a float dtype, got ", Name(x.dtype()));
  if (ByteSize(x.dtype()) < sizeof(float)) x = ConvertTo(x, DType::kFloat);
  Tensor y = Result(ctx, 0, DType::kBool, x.shape());
  DispatchFloat(x.dtype(), ctx.Where(), [&]<typename T>() {
    Map(x.data<T>(), y.data<bool>(), x.size(), f);
  });
}

void IsNaN(KernelContext& ctx) {
  Predicate(ctx, [](auto x) { return x != x; });
}

void IsInf(KernelContext& ctx) {
  bool negative = ctx.Int("detect_negative", 1) != 0;
  bool positive = ctx.Int("detect_positive", 1) != 0;
  Predicate(ctx, [=](auto x) {
    constexpr auto kInfinity = std::numeric_limits<decltype(x)>::infinity();
    return ((x == kInfinity) & positive) | ((x == -kInfinity) & negative);
  });
}

void Not(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(x.dtype() == DType::kBool, "[", ctx.Where(), "] expected bool, got ",
        Name(x.dtype()));
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  Map(static_cast<const uint8_t*>(x.raw()), y.data<bool>(), x.size(),
      [](uint8_t v) { return v == 0; });
}

void BitwiseNot(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(IsInteger(x.dtype()), "[", ctx.Where(), "] expected integers, got ",
        Name(x.dtype()));
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  Map(static_cast<const uint8_t*>(x.raw()), static_cast<uint8_t*>(y.raw()),
      static_cast<int64_t>(x.bytes()),
      [](uint8_t v) { return static_cast<uint8_t>(~v); });
}

void Identity(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor y = Result(ctx, 0, x.dtype(), x.shape());
  CopyBytes(x, y);
}

}  // namespace

void RegisterUnary(KernelRegistry& r) {
  const KernelTraits in_place{.in_place = {{0, 0}}};
  const KernelTraits narrow{
      .in_place = {{0, 0}}, .narrow_in = {0}, .narrow_out = {0}};
  r.Add("Neg", Widened<Neg>, in_place);
  r.Add("Abs", Widened<Abs>, in_place);
  r.Add("Sign", Widened<Sign>, in_place);
  r.Add("Sqrt", Widened<Sqrt>, narrow);
  r.Add("Reciprocal", Widened<Reciprocal>, narrow);
  r.Add("Floor", Widened<Floor>, narrow);
  r.Add("Ceil", Widened<Ceil>, narrow);
  r.Add("Round", Widened<Round>, narrow);
  r.Add("Exp", Widened<Exp>, narrow);
  r.Add("Log", Widened<Log>, narrow);
  r.Add("Erf", Widened<Erf>, narrow);
  r.Add("Sin", Widened<Sin>, in_place);
  r.Add("Cos", Widened<Cos>, in_place);
  r.Add("Tan", Widened<Tan>, in_place);
  r.Add("Asin", Widened<Asin>, in_place);
  r.Add("Acos", Widened<Acos>, in_place);
  r.Add("Atan", Widened<Atan>, in_place);
  r.Add("Sinh", Widened<Sinh>, in_place);
  r.Add("Cosh", Widened<Cosh>, in_place);
  r.Add("Asinh", Widened<Asinh>, in_place);
  r.Add("Acosh", Widened<Acosh>, in_place);
  r.Add("Atanh", Widened<Atanh>, in_place);
  r.Add("IsNaN", IsNaN);
  r.Add("IsInf", IsInf);
  r.Add("Not", Not, in_place);
  r.Add("BitwiseNot", BitwiseNot, in_place);
  r.Add("Identity", Identity, {.view = true});
  r.Add("Detach", Identity, {.view = true}, kDomain);
}

}  // namespace onnx_fp8
