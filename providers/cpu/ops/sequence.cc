// SPDX-License-Identifier: Apache-2.0
//
// Ops that deal with positions: which elements are set, largest, distinct.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "providers/cpu/dispatch.h"
#include "providers/cpu/strided.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/positions.h"

namespace onnx_fp8 {
namespace {

// Sorting needs a total order, so NaN is larger than all numbers.
template <typename T>
bool Before(T a, T b) {
  return a < b || (b != b && a == a);
}

// Small floats become float and narrow integers int64; order and equality of
// the elements do not change.
Tensor Comparable(const Tensor& x) {
  DType dtype = x.dtype();
  if (dtype == DType::kBool) return ConvertTo(x, DType::kUInt8);
  if (IsFloat(dtype) && dtype != DType::kDouble && dtype != DType::kFloat) {
    return ConvertTo(x, DType::kFloat);
  }
  return IsFloat8(dtype) ? ConvertTo(x, DType::kFloat) : WideInteger(x);
}

// indices (outer, inner) of any numeric dtype, depth, values [off, on] → y
// (outer, depth, inner)
void OneHot(KernelContext& ctx) {
  const Tensor& indices = Operand(ctx, 0);
  const Tensor& values = Operand(ctx, 2);
  const auto [depth, inner, shape] = OneHotSizesOf(ctx);
  Tensor& y = ctx.Out(0, values.dtype(), shape);
  size_t width = ByteSize(values.dtype());
  FillElements(y.raw(), y.size(), width, values.raw());
  if (y.size() == 0) return;
  const void* on = AtElement(values.raw(), 1, width);
  Tensor places = ConvertTo(indices, DType::kInt64);
  for (int64_t i = 0; i < places.size(); ++i) {
    int64_t place = places.data<int64_t>()[i];
    if (place < -depth || place >= depth) continue;
    if (place < 0) place += depth;
    int64_t offset = (i / inner * depth + place) * inner + i % inner;
    std::memcpy(AtElement(y.raw(), offset, width), on, width);
  }
}

void Trilu(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t k = DiagonalOf(ctx), rows = x.dim(-2), columns = x.dim(-1);
  bool upper = ctx.Int("upper", 1) != 0;
  Tensor& y = ctx.Out(0, x.dtype(), x.shape());
  if (y.size() == 0) return;
  DispatchWidth(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* from = static_cast<const T*>(x.raw());
    T* to = static_cast<T*>(y.raw());
    ParallelFor(x.size() / columns, RowsPerTask(columns),
                [&](int64_t begin, int64_t end) {
                  for (int64_t row = begin; row < end; ++row) {
                    const T* xr = from + row * columns;
                    T* yr = to + row * columns;
                    // Columns from `cut` on lie above the diagonal (upper), or
                    // to the right of the kept ones (lower).
                    int64_t cut = row % rows + k + (upper ? 0 : 1);
                    cut = std::clamp<int64_t>(cut, 0, columns);
                    std::fill(upper ? yr : yr + cut,
                              upper ? yr + cut : yr + columns, T{0});
                    std::copy(upper ? xr + cut : xr,
                              upper ? xr + columns : xr + cut,
                              upper ? yr + cut : yr);
                  }
                });
  });
}

// Positions of the first k elements of a line in the wanted order; of equal
// elements the one at the lower position comes first.
template <typename T>
void TopOfLine(const T* x, int64_t step, bool largest, int64_t k,
               std::vector<int64_t>& order) {
  std::iota(order.begin(), order.end(), 0);
  auto better = [&](int64_t i, int64_t j) {
    T a = x[i * step], b = x[j * step];
    if (largest) std::swap(a, b);
    if (Before(a, b)) return true;
    return !Before(b, a) && i < j;
  };
  std::partial_sort(order.begin(), order.begin() + k, order.end(), better);
}

// x (outer, size, inner) → values, indices (outer, k, inner)
void TopK(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  const auto [k, s, shape] = TopKSizesOf(ctx);
  bool largest = ctx.Int("largest", 1) != 0;
  Tensor values = ctx.Out(0, x.dtype(), shape);
  Tensor indices = Tensor::Allocate(DType::kInt64, shape);
  if (ctx.HasOut(1)) indices = ctx.Out(1, DType::kInt64, shape);
  if (values.size() == 0) return;
  Tensor keys = Comparable(x);
  int64_t* places = indices.data<int64_t>();
  DispatchWide(keys.dtype(), ctx.Where(), [&]<typename T>() {
    const T* data = keys.data<T>();
    ParallelFor(
        s.outer * s.inner, std::max<int64_t>(1024 / s.n, 1),
        [&](int64_t begin, int64_t end) {
          std::vector<int64_t> order(static_cast<size_t>(s.n));
          for (int64_t i = begin; i < end; ++i) {
            int64_t o = i / s.inner, j = i % s.inner;
            TopOfLine(data + o * s.n * s.inner + j, s.inner, largest, k, order);
            for (int64_t t = 0; t < k; ++t) {
              places[(o * k + t) * s.inner + j] = order[static_cast<size_t>(t)];
            }
          }
        });
  });
  DispatchWidth(x.dtype(), ctx.Where(), [&]<typename T>() {
    const T* from = static_cast<const T*>(x.raw());
    T* to = static_cast<T*>(values.raw());
    for (int64_t i = 0; i < values.size(); ++i) {
      int64_t o = i / (k * s.inner), j = i % s.inner;
      to[i] = from[(o * s.n + places[i]) * s.inner + j];
    }
  });
}

// x → positions (rank, n) of the elements that are not 0, in row-major order
void NonZero(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Tensor flags = ConvertTo(x, DType::kBool);
  const bool* set = flags.data<bool>();
  int64_t n = std::count(set, set + flags.size(), true);
  int64_t* y = ctx.Out(0, DType::kInt64, {x.rank(), n}).data<int64_t>();
  if (n == 0 || x.rank() == 0) return;
  Odometer<0> at(x.shape(), {});
  int64_t column = 0;
  for (int64_t i = 0; i < x.size(); ++i, at.Next()) {
    if (!set[i]) continue;
    for (size_t d = 0; d < at.index().size(); ++d) {
      y[static_cast<int64_t>(d) * n + column] = at.index()[d];
    }
    ++column;
  }
}

// x along the axis that the node names; flattened if it names none.
struct Line {
  Line(const KernelContext& ctx, const Tensor& x)
      : axis(ctx.Has("axis") ? AxisIn(ctx, ctx.Int("axis", 0), x.rank()) : 0),
        shape(ctx.Has("axis") ? x.shape() : Shape{x.size()}),
        view(ViewAlong(shape, axis)) {}
  // The shape with n slices.
  Shape ShapeOf(int64_t n) const {
    Shape other = shape;
    other[static_cast<size_t>(axis)] = n;
    return other;
  }

  int64_t axis;
  Shape shape;
  AxisView view;
};

// x (outer, size, inner) → y (outer, n, inner): the slices at `places`.
void TakeSlices(const Tensor& x, AxisView s, const std::vector<int64_t>& places,
                Tensor& y) {
  auto n = static_cast<int64_t>(places.size());
  size_t width = ByteSize(x.dtype());
  for (int64_t i = 0; i < s.outer * n && s.inner > 0; ++i) {
    int64_t place = i / n * s.n + places[static_cast<size_t>(i % n)];
    std::memcpy(AtElement(y.raw(), i * s.inner, width),
                AtElement(x.raw(), place * s.inner, width),
                static_cast<size_t>(s.inner) * width);
  }
}

void Compress(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  const Tensor& condition = Operand(ctx, 1);
  Check(condition.dtype() == DType::kBool && condition.rank() == 1, "[",
        ctx.Where(), "] expected a list of bools as condition, got ",
        Name(condition.dtype()), ToString(condition.shape()));
  Line line(ctx, x);
  const AxisView& s = line.view;
  Check(condition.size() <= s.n, "[", ctx.Where(), "] expected at most ", s.n,
        " conditions, got ", condition.size());
  std::vector<int64_t> places;
  for (int64_t i = 0; i < condition.size(); ++i) {
    if (condition.data<bool>()[i]) places.push_back(i);
  }
  auto n = static_cast<int64_t>(places.size());
  TakeSlices(x, s, places, ctx.Out(0, x.dtype(), line.ShapeOf(n)));
}

// The distinct slices of an axis. All but `inverse` have one entry per distinct
// slice, in the order of the result.
struct Distinct {
  std::vector<int64_t> first, count, inverse;
};

// keys (size, length): one row per slice.
template <typename T>
Distinct FindDistinct(const T* keys, int64_t size, int64_t length,
                      bool sorted) {
  auto before = [&](int64_t i, int64_t j) {
    const T *a = keys + i * length, *b = keys + j * length;
    return std::lexicographical_compare(a, a + length, b, b + length,
                                        Before<T>);
  };
  std::vector<int64_t> order(static_cast<size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, before);
  // Runs of equal slices begin with the first of them.
  std::vector<std::pair<int64_t, int64_t>> runs;  // begin, end in order
  for (int64_t i = 0; i < size; ++i) {
    auto at = static_cast<size_t>(i);
    if (i == 0 || before(order[at - 1], order[at])) runs.push_back({i, i});
    runs.back().second = i + 1;
  }
  if (!sorted) {
    std::ranges::sort(runs, {}, [&](const auto& run) {
      return order[static_cast<size_t>(run.first)];
    });
  }
  Distinct found;
  found.inverse.resize(static_cast<size_t>(size));
  for (const auto& [begin, end] : runs) {
    for (int64_t i = begin; i < end; ++i) {
      found.inverse[static_cast<size_t>(order[static_cast<size_t>(i)])] =
          static_cast<int64_t>(found.first.size());
    }
    found.first.push_back(order[static_cast<size_t>(begin)]);
    found.count.push_back(end - begin);
  }
  return found;
}

void Unique(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  Line line(ctx, x);
  const AxisView& s = line.view;
  Tensor keys = Comparable(x);
  Tensor rows = Tensor::Allocate(keys.dtype(), {s.n, s.outer, s.inner});
  Shape order = {s.n, s.outer, s.inner};
  std::vector<int64_t> strides = {s.inner, s.n * s.inner, 1};
  CopyStrided(order, ByteSize(keys.dtype()), keys.raw(), strides, rows.raw(),
              Strides(order));
  Distinct found;
  DispatchWide(keys.dtype(), ctx.Where(), [&]<typename T>() {
    found = FindDistinct(rows.data<T>(), s.n, s.outer * s.inner,
                         ctx.Int("sorted", 1) != 0);
  });
  auto n = static_cast<int64_t>(found.first.size());
  TakeSlices(x, s, found.first, ctx.Out(0, x.dtype(), line.ShapeOf(n)));
  SetResult(ctx, 1, Tensor::Ints(found.first));
  SetResult(ctx, 2, Tensor::Ints(found.inverse));
  SetResult(ctx, 3, Tensor::Ints(found.count));
}

}  // namespace

void RegisterSequence(KernelRegistry& r) {
  r.Add("OneHot", OneHot);
  r.Add("Trilu", Trilu);
  r.Add("TopK", TopK);
  r.Add("NonZero", NonZero);
  r.Add("Compress", Compress);
  r.Add("Unique", Unique);
}

}  // namespace onnx_fp8
