// SPDX-License-Identifier: Apache-2.0
//
// Cast between all numeric dtypes. Small floats go through float: decoded
// before, encoded after the conversion.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "base/saturating_cast.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/narrow_floats.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/stored.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/bits.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kBlock = 1024;  // elements converted at a time

bool IsSmallFloat(DType dtype) {
  return IsFloat8(dtype) || dtype == DType::kE8M0 || dtype == DType::kFloat16 ||
         dtype == DType::kBFloat16;
}

// --- small floats to float and back -----------------------------------------

template <typename T>
void DecodeLoop(const void* from, float* to, int64_t n) {
  auto* x = static_cast<const T*>(from);
  for (int64_t i = 0; i < n; ++i) to[i] = Decode(x[i]);
}

void DecodeBlock(DType dtype, const void* from, float* to, int64_t n) {
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  auto* bytes = static_cast<const uint8_t*>(from);
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return WidenFloats(dtype, from, to, n);
    case DType::kE4M3:
      return kernels.decode_e4m3(bytes, to, n);
    case DType::kE5M2:
      return kernels.decode_e5m2(bytes, to, n);
    default:
      return DecodeLoop<E8M0>(from, to, n);
  }
}

// ONNX's saturate = 0: too large values become infinity, or NaN in E4M3, which
// has no infinity. The limit is the middle between the largest value and the
// next step, which rounds to even (E4M3: down to 448, E5M2: up).
E4M3 EncodeE4M3Unsaturated(float x) {
  if (std::fabs(x) > 464.0f) x = std::copysign(NAN, x);
  return EncodeE4M3(x);
}
E5M2 EncodeE5M2Unsaturated(float x) {
  uint8_t sign = std::signbit(x) ? 0x80 : 0;
  if (std::fabs(x) >= 61440.0f) return {static_cast<uint8_t>(sign | 0x7C)};
  return EncodeE5M2(x);
}
// ONNX's saturate = 1, round_mode "up".
E8M0 EncodeE8M0Saturated(float x) { return EncodeE8M0(std::min(x, 0x1p127f)); }

template <typename T, T (*kEncode)(float)>
void EncodeLoop(const float* from, void* to, int64_t n) {
  auto* y = static_cast<T*>(to);
  for (int64_t i = 0; i < n; ++i) y[i] = kEncode(from[i]);
}

void EncodeBlock(DType dtype, bool saturate, const float* x, void* y,
                 int64_t n) {
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  auto* bytes = static_cast<uint8_t*>(y);
  switch (dtype) {
    case DType::kFloat16:
    case DType::kBFloat16:
      return NarrowFloats(dtype, x, y, n);
    case DType::kE4M3:
      return saturate ? kernels.encode_e4m3(x, 1.0f, bytes, n)
                      : EncodeLoop<E4M3, EncodeE4M3Unsaturated>(x, y, n);
    case DType::kE5M2:
      return saturate ? kernels.encode_e5m2(x, 1.0f, bytes, n)
                      : EncodeLoop<E5M2, EncodeE5M2Unsaturated>(x, y, n);
    default:
      return EncodeLoop<E8M0, EncodeE8M0Saturated>(x, y, n);
  }
}

// --- between C's types ------------------------------------------------------

// Bool operands are bytes: any byte but 0 is true.
struct Bool {
  uint8_t byte;
};

template <typename To, typename From>
void ConvertBlock(const void* from, void* to, int64_t n) {
  auto* x = static_cast<const From*>(from);
  auto* y = static_cast<To*>(to);
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<From, Bool>) {
      y[i] = SaturatingCast<To>(x[i].byte != 0);
    } else {
      y[i] = SaturatingCast<To>(x[i]);
    }
  }
}

// Converts double to float in such a way that rounding the float once more
// gives the same as rounding the double: inexact results get an odd last bit.
void RoundToOdd(const double* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    auto nearest = static_cast<float>(x[i]);
    auto back = static_cast<double>(nearest);
    uint32_t bits = std::bit_cast<uint32_t>(nearest);
    if (back != x[i] && std::isfinite(nearest)) {
      // It was rounded away from zero: go one step back, then make the bit odd.
      if (std::fabs(back) > std::fabs(x[i])) --bits;
      bits |= 1;
    }
    y[i] = std::bit_cast<float>(bits);
  }
}

using Block = void (*)(const void* from, void* to, int64_t n);

template <typename To>
Block ConverterTo(DType from, const std::string& where) {
  if (from == DType::kBool) return &ConvertBlock<To, Bool>;
  Block block = nullptr;
  DispatchNumeric(from, where,
                  [&]<typename From>() { block = &ConvertBlock<To, From>; });
  return block;
}

Block Converter(DType from, DType to, const std::string& where) {
  if (to == DType::kBool) return ConverterTo<bool>(from, where);
  Block block = nullptr;
  DispatchNumeric(to, where,
                  [&]<typename To>() { block = ConverterTo<To>(from, where); });
  return block;
}

void RoundToOddBlock(const void* from, void* to, int64_t n) {
  RoundToOdd(static_cast<const double*>(from), static_cast<float*>(to), n);
}

// --- ops --------------------------------------------------------------------

// In blocks: decode small floats to float, convert between C's types, encode to
// small floats; each of the three only if it is needed.
void CastTo(KernelContext& ctx, const Tensor& x, DType to) {
  bool saturate = ctx.Int("saturate", 1) != 0;
  if (to == DType::kE8M0) {
    std::string mode = ctx.String("round_mode", "up");
    Check(saturate && mode == "up", "[", ctx.Where(),
          "] expected saturate = 1 and round_mode up for ", Name(to), ", got ",
          saturate, " and ", mode);
  }
  Check(ByteSize(to) > 0 && ByteSize(x.dtype()) > 0, "[", ctx.Where(),
        "] expected numeric dtypes, got ", Name(x.dtype()), " to ", Name(to));
  Tensor y = Result(ctx, 0, to, x.shape());
  if (to == x.dtype()) return CopyBytes(x, y);
  bool decode = IsSmallFloat(x.dtype());
  bool encode = IsSmallFloat(to);
  DType from = decode ? DType::kFloat : x.dtype();
  DType middle = encode ? DType::kFloat : to;
  Block convert = encode && from == DType::kDouble
                      ? &RoundToOddBlock
                      : Converter(from, middle, ctx.Where());
  auto x_size = static_cast<int64_t>(ByteSize(x.dtype()));
  auto y_size = static_cast<int64_t>(ByteSize(to));
  ParallelFor(x.size(), kGrain, [&](int64_t begin, int64_t end) {
    float decoded[kBlock];
    float converted[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      int64_t n = std::min(kBlock, end - i);
      const void* in = static_cast<const char*>(x.raw()) + i * x_size;
      void* out = static_cast<char*>(y.raw()) + i * y_size;
      if (decode) {
        DecodeBlock(x.dtype(), in, decoded, n);
        in = decoded;
      }
      if (!encode) {
        convert(in, out, n);
      } else if (from == DType::kFloat) {
        EncodeBlock(to, saturate, static_cast<const float*>(in), out, n);
      } else {
        convert(in, converted, n);
        EncodeBlock(to, saturate, converted, out, n);
      }
    }
  });
}

void Cast(KernelContext& ctx) {
  CastTo(ctx, Operand(ctx, 0), static_cast<DType>(ctx.Int("to", 0)));
}

void CastLike(KernelContext& ctx) {
  CastTo(ctx, Operand(ctx, 0), Operand(ctx, 1).dtype());
}

void BitCast(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor& y = ctx.Out(0, BitCastTarget(ctx), x.shape());
  if (x.bytes() > 0) std::memcpy(y.raw(), x.raw(), x.bytes());
}

// In float, and in double as the body: a Cast there and back.
void RoundTo(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Tensor y = StoredResult(ctx, 0, ComputedAs(x), x.shape());
  if (x.dtype() == DType::kDouble) {
    return CopyBytes(ConvertTo(ConvertTo(x, to), x.dtype()), y);
  }
  if (IsHalf(y.dtype()) && x.dtype() == y.dtype()) return CopyBytes(x, y);
  StoredIn<float> from(x);
  StoredOut<float> result(y);
  ParallelFor(x.size(), kGrain, [&](int64_t begin, int64_t end) {
    float wide[kBlock];
    for (int64_t i = begin; i < end; i += kBlock) {
      int64_t n = std::min(kBlock, end - i);
      const float* block = from.Read(i, n, wide);
      if (result.narrow()) {
        result.Write(i, n, block);
      } else {
        RoundFloats(to, block, result.At(i, wide), n);
      }
    }
  });
}

}  // namespace

void RegisterCast(KernelRegistry& r) {
  r.Add("BitCast", BitCast);
  r.Add("Cast", Cast);
  r.Add("CastLike", CastLike);
  r.Add("RoundTo", RoundTo,
        {.in_place = {{0, 0}}, .narrow_in = {0}, .narrow_out = {0}}, kDomain);
}

}  // namespace onnx_fp8
