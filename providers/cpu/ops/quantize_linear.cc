// SPDX-License-Identifier: Apache-2.0
//
// ONNX's own quantization, in float: y = saturate(round(x / scale) + zero
// point), with halves to even, and x = (y - zero point) · scale. Formulas:
// ONNX's operator documentation.
#include <algorithm>
#include <cmath>
#include <limits>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// The scale of each element of x: one for all, one for each index of an axis,
// or one for each block of the axis.
struct Grid {
  AxisView view = {1, 1, 1};
  int64_t block = 0;   // elements along the axis that share a scale; 0: all
  int64_t blocks = 1;  // along the axis
  bool outer = false;  // each line has scales of its own

  // For element (o, n) of the view; the inner index is added if `outer`.
  int64_t At(int64_t o, int64_t n, int64_t i) const {
    if (block == 0) return 0;
    int64_t b = n / block;
    return outer ? (o * blocks + b) * view.inner + i : b;
  }
};

Grid GridOf(const KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &scale = Operand(ctx, 1);
  Grid grid;
  grid.view = {1, 1, x.size()};
  int64_t block = ctx.Int("block_size", 0);
  Check(block >= 0, "[", ctx.Where(),
        "] expected a block_size of 0 or more, got ", block);
  if (block == 0 && scale.size() == 1 && scale.rank() <= 1) return grid;
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 1), x.rank());
  grid.view = ViewAlong(x.shape(), axis);
  int64_t n = grid.view.n;
  grid.block = std::max<int64_t>(block, 1);
  grid.blocks = n / grid.block + (n % grid.block != 0);
  grid.outer = block > 0;
  Shape expected = {n};
  if (grid.outer) {
    expected = x.shape();
    expected[static_cast<size_t>(axis)] = grid.blocks;
  }
  Check(scale.shape() == expected, "[", ctx.Where(),
        "] expected scales of shape ", ToString(expected), ", got ",
        ToString(scale.shape()));
  return grid;
}

// fn(element, its scale), in parallel.
template <typename Fn>
void ForEachElement(const Grid& grid, Fn fn) {
  const AxisView& v = grid.view;
  ParallelFor(v.outer * v.n, RowsPerTask(v.inner),
              [&](int64_t begin, int64_t end) {
                for (int64_t line = begin; line < end; ++line) {
                  for (int64_t i = 0; i < v.inner; ++i) {
                    fn(line * v.inner + i, grid.At(line / v.n, line % v.n, i));
                  }
                }
              });
}

// Zero points of the same shape as the scales, or none. Errors: another dtype
// or shape.
const Tensor* ZeroPoints(const KernelContext& ctx, DType dtype) {
  if (!ctx.HasIn(2)) return nullptr;
  const Tensor& zero = ctx.In(2);
  Check(zero.dtype() == dtype && zero.size() == ctx.In(1).size(), "[",
        ctx.Where(), "] expected zero points ", Name(dtype),
        ToString(ctx.In(1).shape()), ", got ", Name(zero.dtype()),
        ToString(zero.shape()));
  return &zero;
}

std::vector<float> Floats(const Tensor& t) {
  Tensor f = ConvertTo(t, DType::kFloat);
  return {f.data<float>(), f.data<float>() + f.size()};
}

// The type of the codes: the zero points' dtype, or an attribute.
DType TargetOf(const KernelContext& ctx) {
  if (ctx.HasIn(2)) return ctx.In(2).dtype();
  auto dtype = static_cast<DType>(ctx.Int("output_dtype", 0));
  return dtype == DType::kUndefined ? DType::kUInt8 : dtype;
}

bool IsByteOrShort(DType dtype) {
  return dtype == DType::kInt8 || dtype == DType::kUInt8 ||
         dtype == DType::kInt16 || dtype == DType::kUInt16;
}

// T has 8 or 16 bits, so a float holds its limits.
template <typename T>
T Saturated(float x) {
  constexpr auto kLow = static_cast<float>(std::numeric_limits<T>::lowest());
  constexpr auto kHigh = static_cast<float>(std::numeric_limits<T>::max());
  return std::isnan(x) ? T{0} : static_cast<T>(std::clamp(x, kLow, kHigh));
}

void QuantizeLinear(KernelContext& ctx) {
  Grid grid = GridOf(ctx);
  DType to = TargetOf(ctx);
  const Tensor* zero_points = ZeroPoints(ctx, to);
  Tensor x = ConvertTo(ctx.In(0), DType::kFloat);
  const float* from = x.data<float>();
  std::vector<float> scales = Floats(ctx.In(1));
  auto scale = [&](int64_t i) { return scales[static_cast<size_t>(i)]; };
  Tensor& y = ctx.Out(0, to, x.shape());
  if (IsFloat8(to)) {
    Check(ctx.Int("saturate", 1) != 0, "[", ctx.Where(),
          "] expected saturate 1, got 0");
    std::vector<float> zeros(scales.size());
    if (zero_points) zeros = Floats(*zero_points);
    Tensor moved = Tensor::Allocate(DType::kFloat, x.shape());
    float* q = moved.data<float>();
    ForEachElement(grid, [&](int64_t e, int64_t s) {
      q[e] = from[e] / scale(s) + zeros[static_cast<size_t>(s)];
    });
    return CopyBytes(ConvertTo(moved, to), y);
  }
  Check(IsByteOrShort(to), "[", ctx.Where(),
        "] expected to quantize to int8, uint8, int16, uint16 or float8, got ",
        Name(to));
  DispatchNumeric(to, ctx.Where(), [&]<typename T>() {
    const T* zero = zero_points ? zero_points->data<T>() : nullptr;
    T* out = y.data<T>();
    ForEachElement(grid, [&](int64_t e, int64_t s) {
      float code = std::nearbyint(from[e] / scale(s));
      out[e] = Saturated<T>(code + (zero ? static_cast<float>(zero[s]) : 0));
    });
  });
}

void DequantizeLinear(KernelContext& ctx) {
  Grid grid = GridOf(ctx);
  const Tensor& x = ctx.In(0);
  const Tensor* zero_points = ZeroPoints(ctx, x.dtype());
  std::vector<float> scales = Floats(ctx.In(1));
  std::vector<float> zeros(scales.size());
  if (zero_points) zeros = Floats(*zero_points);
  Tensor result = Tensor::Allocate(DType::kFloat, x.shape());
  float* out = result.data<float>();
  auto dequantize = [&](const auto* codes) {
    ForEachElement(grid, [&](int64_t e, int64_t s) {
      auto k = static_cast<size_t>(s);
      // Also exact for 32-bit codes, which have no zero point.
      out[e] = static_cast<float>(static_cast<double>(codes[e]) -
                                  static_cast<double>(zeros[k])) *
               scales[k];
    });
  };
  if (IsFloat8(x.dtype())) {
    Tensor decoded = ConvertTo(x, DType::kFloat);
    dequantize(decoded.data<float>());
  } else {
    Check(IsByteOrShort(x.dtype()) || x.dtype() == DType::kInt32, "[",
          ctx.Where(), "] expected codes of 8, 16 or 32 bits, got ",
          Name(x.dtype()));
    DispatchNumeric(x.dtype(), ctx.Where(),
                    [&]<typename T>() { dequantize(x.data<T>()); });
  }
  auto to = static_cast<DType>(ctx.Int("output_dtype", 0));
  if (to == DType::kUndefined) to = ctx.In(1).dtype();
  SetResult(ctx, 0, ConvertTo(result, to));
}

// Cuts the range of x and zero into 256 steps.
void DynamicQuantizeLinear(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Check(x.dtype() == DType::kFloat, "[", ctx.Where(), "] expected float, got ",
        Name(x.dtype()));
  const float* from = x.data<float>();
  float low = 0, high = 0;
  for (int64_t i = 0; i < x.size(); ++i) {
    low = std::min(low, from[i]);
    high = std::max(high, from[i]);
  }
  float scale = high == low ? 1.0f : (high - low) / 255.0f;
  auto zero = Saturated<uint8_t>(std::nearbyint(-low / scale));
  uint8_t* y = ctx.Out(0, DType::kUInt8, x.shape()).data<uint8_t>();
  for (int64_t i = 0; i < x.size(); ++i) {
    y[i] = Saturated<uint8_t>(std::nearbyint(from[i] / scale) +
                              static_cast<float>(zero));
  }
  SetResult(ctx, 1, Tensor::Scalar(scale));
  SetResult(ctx, 2, Tensor::Scalar(zero));
}

}  // namespace

void RegisterQuantizeLinear(KernelRegistry& r) {
  r.Add("QuantizeLinear", QuantizeLinear);
  r.Add("DequantizeLinear", DequantizeLinear);
  r.Add("DynamicQuantizeLinear", DynamicQuantizeLinear);
}

}  // namespace onnx_fp8
