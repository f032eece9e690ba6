// SPDX-License-Identifier: Apache-2.0
//
// Picks elements by computed indices; also the gradient of picking rows.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "graph/graph.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/dispatch.h"
#include "providers/cpu/strided.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8 {
namespace {

// y[i] = x[offset(i)] for `count` blocks of `block` elements, where offset(i)
// counts elements.
template <typename Offset>
void CopyBlocks(const KernelContext& ctx, const Tensor& x, int64_t count,
                int64_t block, const Offset& offset, Tensor& y) {
  DispatchWidth(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* from = static_cast<const T*>(x.raw());
    T* to = static_cast<T*>(y.raw());
    ParallelFor(count, RowsPerTask(block), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (block == 1) {
          to[i] = from[offset(i)];
        } else {
          std::memcpy(to + i * block, from + offset(i),
                      static_cast<size_t>(block) * sizeof(T));
        }
      }
    });
  });
}

// `shape` with the axis replaced by the axes of the indices.
Shape GatheredShape(const Shape& shape, int64_t axis, const Shape& indices) {
  Shape out(shape.begin(), shape.begin() + axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), shape.begin() + axis + 1, shape.end());
  return out;
}

// x (outer, size, inner), indices (n) → y (outer, n, inner)
void Gather(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  std::vector<int64_t> indices = IndicesIn(ctx, 1, x.dim(axis));
  Tensor& y =
      ctx.Out(0, x.dtype(), GatheredShape(x.shape(), axis, ctx.In(1).shape()));
  if (y.size() == 0) return;
  AxisView s = ViewAlong(x.shape(), axis);
  auto n = static_cast<int64_t>(indices.size());
  auto offset = [&](int64_t i) {
    return (i / n * s.n + indices[static_cast<size_t>(i % n)]) * s.inner;
  };
  CopyBlocks(ctx, x, s.outer * n, s.inner, offset, y);
}

void GatherElements(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  std::vector<int64_t> indices = IndicesIn(ctx, 1, x.dim(axis));
  const Shape& shape = ctx.In(1).shape();
  bool fits = shape.size() == x.shape().size();
  for (size_t d = 0; fits && d < shape.size(); ++d) {
    fits = shape[d] <= x.shape()[d] || static_cast<int64_t>(d) == axis;
  }
  Check(fits, "[", ctx.Where(), "] expected indices of a shape inside ",
        ToString(x.shape()), " but for axis ", axis, ", got ", ToString(shape));
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (y.size() == 0) return;
  std::vector<int64_t> strides = Strides(x.shape());
  int64_t step = strides[static_cast<size_t>(axis)];
  strides[static_cast<size_t>(axis)] = 0;
  DispatchWidth(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* from = static_cast<const T*>(x.raw());
    T* to = static_cast<T*>(y.raw());
    ParallelFor(y.size(), kGrain, [&](int64_t begin, int64_t end) {
      Odometer<1> at(shape, {strides}, begin);
      for (int64_t i = begin; i < end; ++i, at.Next()) {
        to[i] = from[at.offset(0) + indices[static_cast<size_t>(i)] * step];
      }
    });
  });
}

// x (batch…, d0 … dk-1, inner…), indices (batch…, m…, k) → y (batch…, m…,
// inner…)
void GatherND(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  const Tensor& indices = Operand(ctx, 1);
  const Shape& xs = x.shape();
  const Shape& is = indices.shape();
  int64_t batch_dims = ctx.Int("batch_dims", 0);
  Check(x.rank() > 0 && indices.rank() > 0 && batch_dims >= 0 &&
            batch_dims < std::min(x.rank(), indices.rank()) &&
            indices.dim(-1) > 0 && indices.dim(-1) <= x.rank() - batch_dims &&
            std::equal(xs.begin(), xs.begin() + batch_dims, is.begin()),
        "[", ctx.Where(), "] expected indices that fit x ", ToString(xs),
        " after ", batch_dims, " batch axes, got ", ToString(is));
  CheckIndexType(ctx, 1);
  auto b = static_cast<size_t>(batch_dims);
  auto k = static_cast<size_t>(indices.dim(-1));
  Shape shape(is.begin(), is.end() - 1);
  shape.insert(shape.end(), xs.begin() + static_cast<std::ptrdiff_t>(b + k),
               xs.end());
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (indices.size() == 0 || y.size() == 0) return;
  int64_t count = indices.size() / indices.dim(-1);
  int64_t per_batch = count / NumElements(std::span(xs).first(b));
  std::vector<int64_t> strides = Strides(xs);
  int64_t batch_step = b > 0 ? strides[b - 1] : 0;
  std::vector<int64_t> values = ToInts(indices);
  std::vector<int64_t> offsets(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t offset = i / per_batch * batch_step;
    for (size_t d = 0; d < k; ++d) {
      int64_t index = values[static_cast<size_t>(i) * k + d];
      offset += IndexInto(ctx, index, xs[b + d]) * strides[b + d];
    }
    offsets[static_cast<size_t>(i)] = offset;
  }
  CopyBlocks(
      ctx, x, count, y.size() / count,
      [&](int64_t i) { return offsets[static_cast<size_t>(i)]; }, y);
}

// For each row of dx, the places in the indices that name it, in order:
// places[first[r]] … places[first[r + 1] - 1] for row r.
struct RowPlaces {
  std::vector<int64_t> first, places;
};

RowPlaces PlacesByRow(const std::vector<int64_t>& indices, int64_t rows) {
  RowPlaces by_row;
  by_row.first.resize(static_cast<size_t>(rows) + 1, 0);
  by_row.places.resize(indices.size());
  for (int64_t row : indices) ++by_row.first[static_cast<size_t>(row) + 1];
  for (size_t r = 1; r < by_row.first.size(); ++r) {
    by_row.first[r] += by_row.first[r - 1];
  }
  std::vector<int64_t> next = by_row.first;
  for (size_t i = 0; i < indices.size(); ++i) {
    int64_t& place = next[static_cast<size_t>(indices[i])];
    by_row.places[static_cast<size_t>(place++)] = static_cast<int64_t>(i);
  }
  return by_row;
}

// The type of the sum: small floats in float, integers modulo 2^64.
template <typename T>
auto Widen(T x) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<uint64_t>(x);
  } else if constexpr (std::is_floating_point_v<T>) {
    return x;
  } else {
    return Decode(x);
  }
}

template <typename T, typename Sum>
T Narrow(Sum x) {
  if constexpr (std::is_same_v<T, BFloat16>) {
    return EncodeBFloat16(x);
  } else if constexpr (std::is_same_v<T, Float16>) {
    return EncodeFloat16(x);
  } else {
    return static_cast<T>(x);
  }
}

// A row of dx belongs to one thread, which adds its rows of dy in the order of
// the indices: the sum does not depend on the number of threads.
template <typename T>
void AddRows(const T* dy, int64_t n, const RowPlaces& by_row, AxisView s,
             T* dx) {
  using Sum = decltype(Widen(T{}));
  auto inner = static_cast<size_t>(s.inner);
  auto add_range = [&](int64_t begin, int64_t end) {
    std::vector<Sum> sum(inner);
    for (int64_t row = begin; row < end; ++row) {
      std::ranges::fill(sum, Sum{0});
      auto r = static_cast<size_t>(row % s.n);
      for (int64_t p = by_row.first[r]; p < by_row.first[r + 1]; ++p) {
        int64_t place = by_row.places[static_cast<size_t>(p)];
        const T* from = dy + (row / s.n * n + place) * s.inner;
        for (size_t i = 0; i < inner; ++i) sum[i] += Widen(from[i]);
      }
      T* to = dx + row * s.inner;
      for (size_t i = 0; i < inner; ++i) to[i] = Narrow<T>(sum[i]);
    }
  };
  ParallelFor(s.outer * s.n, RowsPerTask(s.inner), add_range);
}

// dy (outer, n, inner), indices (n) → dx (outer, size, inner)
void GatherGrad(KernelContext& ctx) {
  const Tensor& dy = Operand(ctx, 0);
  Shape shape = ctx.Ints("shape");
  CheckSizes(ctx, shape);
  int64_t axis =
      AxisIn(ctx, ctx.Int("axis", 0), static_cast<int64_t>(shape.size()));
  std::vector<int64_t> indices =
      IndicesIn(ctx, 1, shape[static_cast<size_t>(axis)]);
  Shape expected = GatheredShape(shape, axis, ctx.In(1).shape());
  Check(dy.shape() == expected, "[", ctx.Where(), "] expected dy of shape ",
        ToString(expected), ", got ", ToString(dy.shape()));
  Tensor& dx = ctx.Out(0, dy.dtype(), shape);
  if (dx.size() == 0) return;
  AxisView s = ViewAlong(shape, axis);
  RowPlaces by_row = PlacesByRow(indices, s.n);
  auto n = static_cast<int64_t>(indices.size());
  auto add = [&]<typename T>() {
    AddRows(dy.data<T>(), n, by_row, s, dx.data<T>());
  };
  if (dy.dtype() == DType::kBFloat16) return add.operator()<BFloat16>();
  if (dy.dtype() == DType::kFloat16) return add.operator()<Float16>();
  DispatchNumeric(dy.dtype(), ctx.Where(), add);
}

}  // namespace

void RegisterGather(KernelRegistry& r) {
  const KernelTraits moves{.moves = true};
  r.Add("Gather", Gather, moves);
  r.Add("GatherElements", GatherElements, moves);
  r.Add("GatherND", GatherND, moves);
  r.Add("GatherGrad", GatherGrad, {}, kDomain);
}

}  // namespace onnx_fp8
