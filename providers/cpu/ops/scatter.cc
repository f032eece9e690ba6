// SPDX-License-Identifier: Apache-2.0
//
// A copy of `data` with elements set, or combined, at computed indices. Updates
// are applied in order, so repeated indices give the same result every time.
#include <algorithm>

#include "onnx_fp8/float8.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/strided.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/scatter_reduction.h"

namespace onnx_fp8 {
namespace {

template <typename T>
void CombineInto(ScatterReduction reduction, const T* from, int64_t n, T* to) {
  for (int64_t i = 0; i < n; ++i) {
    if constexpr (std::is_same_v<T, BFloat16>) {
      to[i] =
          EncodeBFloat16(Combine(reduction, Decode(to[i]), Decode(from[i])));
    } else if constexpr (std::is_same_v<T, Float16>) {
      to[i] = EncodeFloat16(Combine(reduction, Decode(to[i]), Decode(from[i])));
    } else {
      to[i] = Combine(reduction, to[i], from[i]);
    }
  }
}

// y[offset(i) + j] = combine(the old value, updates[i * block + j]) for i <
// count, j < block; offset is called once per i, in order.
template <typename Offset>
void Update(KernelContext& ctx, int64_t count, int64_t block,
            const Offset& offset, Tensor& y) {
  auto reduction = ReadScatterReduction(ctx);
  // Data and updates may be the same value, and the result may lie in its
  // memory.
  Tensor updates = y.SharesDataWith(ctx.In(2)) ? ctx.In(2).Clone() : ctx.In(2);
  auto update = [&]<typename T>() {
    const T* from = static_cast<const T*>(updates.raw());
    T* to = static_cast<T*>(y.raw());
    for (int64_t i = 0; i < count; ++i) {
      CombineInto(reduction, from + i * block, block, to + offset(i));
    }
  };
  DType dtype = y.dtype();
  if (reduction == ScatterReduction::kNone) {
    DispatchWidth(dtype, ctx.Where(), update);
  } else if (dtype == DType::kBFloat16) {
    update.template operator()<BFloat16>();
  } else if (dtype == DType::kFloat16) {
    update.template operator()<Float16>();
  } else {
    DispatchNumeric(dtype, ctx.Where(), update);
  }
}

// The result, filled with the data.
Tensor& CopyOfData(KernelContext& ctx) {
  const Tensor& data = ctx.In(0);
  Tensor& y = ctx.Out(0, data.dtype(), data.shape());
  CopyBytes(data, y);
  return y;
}

void ScatterElements(KernelContext& ctx) {
  const Tensor& data = Operand(ctx, 0);
  const Tensor& updates = Operand(ctx, 2);
  CheckSameDType(ctx, data, updates);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), data.rank());
  std::vector<int64_t> indices = IndicesIn(ctx, 1, data.dim(axis));
  const Shape& shape = ctx.In(1).shape();
  bool fits = shape.size() == data.shape().size() && shape == updates.shape();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = shape[d] <= data.shape()[d] || static_cast<int64_t>(d) == axis;
  }
  Check(fits, "[", ctx.Where(),
        "] expected indices and updates of one shape inside ",
        ToString(data.shape()), " but for axis ", axis, ", got ",
        ToString(shape), " and ", ToString(updates.shape()));
  Tensor& y = CopyOfData(ctx);
  if (updates.size() == 0) return;
  std::vector<int64_t> strides = Strides(data.shape());
  int64_t step = strides[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  Odometer<1> at(shape, {strides});
  auto offset = [&](int64_t i) {
    int64_t place = at.offset(0) + indices[static_cast<size_t>(i)] * step;
    at.Next();
    return place;
  };
  Update(ctx, updates.size(), 1, offset, y);
}

// data (d0 … dk-1, inner…), indices (m…, k), updates (m…, inner…)
void ScatterND(KernelContext& ctx) {
  const Tensor& data = Operand(ctx, 0);
  const Tensor& indices = Operand(ctx, 1);
  const Tensor& updates = Operand(ctx, 2);
  CheckSameDType(ctx, data, updates);
  CheckIndexType(ctx, 1);
  Check(indices.rank() > 0 && indices.dim(-1) <= data.rank(), "[", ctx.Where(),
        "] expected indices into ", data.rank(), " axes, got ",
        ToString(indices.shape()));
  const Shape& sizes = data.shape();
  auto k = static_cast<size_t>(indices.dim(-1));
  Shape expected(indices.shape().begin(), indices.shape().end() - 1);
  int64_t count = NumElements(expected);
  std::span<const int64_t> inner = std::span(sizes).subspan(k);
  expected.insert(expected.end(), inner.begin(), inner.end());
  Check(updates.shape() == expected, "[", ctx.Where(),
        "] expected updates of shape ", ToString(expected), ", got ",
        ToString(updates.shape()));
  Tensor& y = CopyOfData(ctx);
  if (updates.size() == 0) return;
  // All indices are checked before the first update: an in-place result must
  // not be left half changed.
  std::vector<int64_t> values = ToInts(indices), strides = Strides(sizes);
  std::vector<int64_t> offsets(static_cast<size_t>(count), 0);
  for (size_t i = 0; i < offsets.size(); ++i) {
    for (size_t d = 0; d < k; ++d) {
      offsets[i] += IndexInto(ctx, values[i * k + d], sizes[d]) * strides[d];
    }
  }
  auto offset = [&](int64_t i) { return offsets[static_cast<size_t>(i)]; };
  Update(ctx, count, NumElements(inner), offset, y);
}

}  // namespace

void RegisterScatter(KernelRegistry& r) {
  // The result may lie in the data's memory, but never in the updates': indices
  // may repeat and permute elements.
  r.Add("ScatterElements", ScatterElements, {.in_place = {{0, 0}}});
  r.Add("ScatterND", ScatterND, {.in_place = {{0, 0}}});
  r.Add("Scatter", ScatterElements, {.in_place = {{0, 0}}});
}

}  // namespace onnx_fp8
