// SPDX-License-Identifier: Apache-2.0
//
// Applies the tables of Resize, one axis after the other.
#include "providers/ops/resize.h"

#include <algorithm>
#include <cmath>

#include "providers/cpu/strided.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// x (outer, from, inner) → y (outer, to, inner)
template <typename T>
void ApplyTable(const std::vector<Taps>& table, int64_t from, int64_t outer,
                int64_t inner, T extrapolated, const T* x, T* y) {
  auto to = static_cast<int64_t>(table.size());
  ParallelFor(outer * to, RowsPerTask(inner), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Taps& taps = table[static_cast<size_t>(row % to)];
      T* target = y + row * inner;
      std::fill_n(target, inner, taps.index.empty() ? extrapolated : T{0});
      for (size_t k = 0; k < taps.index.size(); ++k) {
        auto weight = static_cast<T>(taps.weight[k]);
        const T* source = x + (row / to * from + taps.index[k]) * inner;
        for (int64_t i = 0; i < inner; ++i) {
          target[i] += weight * source[i];
        }
      }
    }
  });
}

// Values are float or double.
template <typename T>
Tensor Interpolate(const ResizeLayout& layout, T extrapolated, Tensor x) {
  Shape shape = x.shape();
  for (size_t d = shape.size(); d-- > 0;) {
    const ResizeTable& table = layout.tables[d];
    if (!table.changes) continue;
    std::span<const int64_t> sizes = shape;
    int64_t outer = NumElements(sizes.first(d));
    int64_t inner = NumElements(sizes.subspan(d + 1));
    shape[d] = layout.shape[d];
    Tensor y = Tensor::Allocate(x.dtype(), shape);
    ApplyTable(table.taps, table.from, outer, inner, extrapolated, x.data<T>(),
               y.data<T>());
    x = y;
  }
  return x;
}

// Mode nearest moves elements and keeps their dtype. The other modes compute in
// float for floats of up to 32 bits, otherwise in double; integers are rounded.
void Resize(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor& y = ctx.Out(0, x.dtype(), ResizedShape(ctx));
  if (y.size() == 0) return;
  ResizeLayout layout = ResizeLayoutOf(ctx);
  float extrapolated = ctx.Float("extrapolation_value", 0);
  if (layout.nearest && x.rank() > 0) {
    Tensor fill = ConvertTo(Tensor::Scalar(extrapolated), x.dtype());
    return CopyMapped(NearestTables(layout, x.shape()), ByteSize(x.dtype()),
                      x.raw(), fill.raw(), y.raw());
  }
  bool small = IsFloat(x.dtype()) && ByteSize(x.dtype()) < 4;
  Tensor result;
  if (x.dtype() == DType::kFloat || small) {
    result = Interpolate(layout, extrapolated,
                         small ? ConvertTo(x, DType::kFloat) : x);
  } else {
    result =
        Interpolate<double>(layout, extrapolated, ConvertTo(x, DType::kDouble));
    if (IsInteger(x.dtype())) {
      double* values = result.data<double>();
      std::transform(values, values + result.size(), values,
                     [](double value) { return std::nearbyint(value); });
    }
  }
  if (result.dtype() != x.dtype()) result = ConvertTo(result, x.dtype());
  CopyBytes(result, y);
}

}  // namespace

void RegisterResize(KernelRegistry& r) { r.Add("Resize", Resize); }

}  // namespace onnx_fp8
