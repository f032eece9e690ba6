// SPDX-License-Identifier: Apache-2.0
//
// Gather and its gradient. Traffic: Gather reads and writes the result's bytes.
// GatherGrad reads dy once and writes dx once; c equal indices cost c²
// comparisons, which put them into their order.
#include <algorithm>
#include <utility>
#include <vector>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/ops/indices.h"
#include "providers/cuda/ops/units.h"
#include "providers/kernel.h"
#include "providers/ops/for_width.h"

namespace onnx_fp8::cuda {
namespace {

// `shape` with the axis replaced by the axes of the indices.
Shape GatheredShape(const Shape& shape, int64_t axis, const Shape& indices) {
  Shape out(shape.begin(), shape.begin() + axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), shape.begin() + axis + 1, shape.end());
  return out;
}

// x (outer, size, inner), indices (n) → y (outer, n, inner), in units of
// `bytes` bytes; 0 for an index that is outside.
struct Gathering {
  const void* x;
  Indices indices;
  int64_t n, inner, total;
  void* y;
  size_t bytes;
};

template <typename T>
__global__ void __launch_bounds__(kThreads) GatherKernel(Many<Gathering> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Gathering g = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t first = block * kPerBlock + threadIdx.x;
  T values[kAtOnce];
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t at = first + v * kThreads;
    values[v] = T();
    if (at >= g.total) continue;
    int64_t row = Quotient(at, g.inner), outer = Quotient(row, g.n);
    int64_t index = g.indices.At(row - outer * g.n);
    int64_t from = (outer * g.indices.size + index - row) * g.inner + at;
    if (index >= 0) values[v] = static_cast<const T*>(g.x)[from];
  }
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t at = first + v * kThreads;
    if (at < g.total) static_cast<T*>(g.y)[at] = values[v];
  }
}

Gathering GatheringOf(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  Indices indices = IndicesOf(ctx, 1, x.dim(axis));
  Tensor& y =
      ctx.Out(0, x.dtype(), GatheredShape(x.shape(), axis, ctx.In(1).shape()));
  int64_t inner = ViewAlong(x.shape(), axis).inner;
  size_t bytes = ByteSize(x.dtype());
  size_t unit = UnitOf(bytes, {x.raw(), y.raw()}, {inner});
  auto count = static_cast<int64_t>(unit / bytes);
  return {x.raw(), indices, ctx.In(1).size(), inner / count, y.size() / count,
          y.raw(), unit};
}

void GatherMany(std::span<KernelContext> nodes) {
  std::vector<Gathering> all;
  for (KernelContext& ctx : nodes) all.push_back(GatheringOf(ctx));
  for (size_t bytes : {1, 2, 4, 8, 16}) {
    auto blocks = [&](const Gathering& g) {
      return g.bytes == bytes
                 ? static_cast<unsigned>(DivideUp(g.total, kPerBlock))
                 : 0;
    };
    ForMany(all, blocks, [&](const Many<Gathering>& many) {
      ForUnit(bytes, [&]<typename T>() {
        Launch(GatherKernel<T>, many.blocks, kThreads, 0,
               QueueOf(nodes[0]).stream(), many);
      });
    });
  }
}

void Gather(KernelContext& ctx) { GatherMany({&ctx, 1}); }

// ---- one index, or a tuple of them, for each element

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GatherElementsKernel(IndexedPlaces places, const T* x, T* y) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= places.rest.n) return;
  int64_t offset = places.Offset(at);
  y[at] = offset < 0 ? T{0} : x[offset];
}

void GatherElements(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  IndexedPlaces places = ElementPlacesIn(ctx, x, axis);
  Tensor& y = ctx.Out(0, x.dtype(), ctx.In(1).shape());
  if (y.size() == 0) return;
  ForWidth(ByteSize(x.dtype()), [&]<typename T>() {
    Launch(GatherElementsKernel<T>, BlocksFor(y.size()), kThreads, 0,
           QueueOf(ctx).stream(), places, static_cast<const T*>(x.raw()),
           static_cast<T*>(y.raw()));
  });
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    GatherTuplesKernel(Tuples tuples, const T* x, T* y) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= tuples.count * tuples.block) return;
  int64_t offset = tuples.Offset(at / tuples.block);
  y[at] = offset < 0 ? T{0} : x[offset + at % tuples.block];
}

// x (batch…, d0 … dk-1, inner…), indices (batch…, m…, k) → y (batch…, m…,
// inner…)
void GatherND(KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &indices = Operand(ctx, 1);
  const Shape &xs = x.shape(), &is = indices.shape();
  int64_t batch_dims = ctx.Int("batch_dims", 0);
  Check(x.rank() > 0 && indices.rank() > 0 && batch_dims >= 0 &&
            batch_dims < std::min(x.rank(), indices.rank()) &&
            indices.dim(-1) > 0 && indices.dim(-1) <= x.rank() - batch_dims &&
            indices.dim(-1) <= kMostAxes &&
            std::equal(xs.begin(), xs.begin() + batch_dims, is.begin()),
        "[", ctx.Where(), "] expected indices that fit x ", ToString(xs),
        " after ", batch_dims, " batch axes, got ", ToString(is));
  CheckIndexType(ctx, 1);
  Shape shape(is.begin(), is.end() - 1);
  shape.insert(shape.end(), xs.begin() + batch_dims + indices.dim(-1),
               xs.end());
  Tensor& y = ctx.Out(0, x.dtype(), shape);
  if (indices.size() == 0 || y.size() == 0) return;
  Tuples tuples = TuplesInto(ctx, x, static_cast<size_t>(batch_dims));
  ForWidth(ByteSize(x.dtype()), [&]<typename T>() {
    Launch(GatherTuplesKernel<T>, BlocksFor(y.size()), kThreads, 0,
           QueueOf(ctx).stream(), tuples, static_cast<const T*>(x.raw()),
           static_cast<T*>(y.raw()));
  });
}

// ---- the gradient

constexpr uint32_t kFew = 32;  // rows that one thread adds
constexpr unsigned kBlocksOfMany = 1024;
constexpr int kLanes = 32, kLines = kThreads / kLanes;

// The indices that name each row of dx.
struct NamedRows {
  uint32_t* counts;  // how many name row r
  uint32_t* named;   // how many lie in lists so far
  uint32_t* long_count;
  uint32_t* long_rows;  // rows that more than kFew name
  uint32_t* first;      // where the list of row r begins
  uint32_t* slots;      // where index i lies in its list
  uint32_t* places;     // the lists
  uint32_t* sorted;     // the same in the order of indices; at `slots`
};

// Which index comes first in a list depends on the order of threads.
__global__ void __launch_bounds__(kThreads)
    CountIndicesKernel(Indices indices, int64_t n, NamedRows lists) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  int64_t row = indices.At(i);
  if (row >= 0) lists.slots[i] = atomicAdd(&lists.counts[row], 1u);
}

// A warp takes the memory for its lists at once. Where they lie depends on the
// order of warps.
__global__ void __launch_bounds__(kThreads)
    BeginKernel(int64_t rows, NamedRows lists) {
  constexpr unsigned kAll = 0xFFFFFFFFu;
  int64_t r = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  unsigned lane = threadIdx.x % 32;
  uint32_t own = r < rows ? lists.counts[r] : 0, sum = own, begin = 0;
  for (unsigned lanes = 1; lanes < 32; lanes *= 2) {
    uint32_t left = __shfl_up_sync(kAll, sum, lanes);
    if (lane >= lanes) sum += left;
  }
  if (lane == 31 && sum > 0) begin = atomicAdd(lists.named, sum);
  begin = __shfl_sync(kAll, begin, 31);
  if (r >= rows) return;
  lists.first[r] = begin + sum - own;
  if (own > kFew) {
    lists.long_rows[atomicAdd(lists.long_count, 1u)] = static_cast<uint32_t>(r);
  }
}

__global__ void __launch_bounds__(kThreads)
    PlacesKernel(Indices indices, int64_t n, NamedRows lists) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  int64_t row = indices.At(i);
  if (row < 0) return;
  lists.places[lists.first[row] + lists.slots[i]] = static_cast<uint32_t>(i);
}

// From here on nothing depends on the order of threads.
__global__ void __launch_bounds__(kThreads)
    SortIndicesKernel(Indices indices, NamedRows lists) {
  int64_t p = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (p >= *lists.named) return;
  uint32_t own = lists.places[p], before = 0;
  int64_t row = indices.At(own);
  uint32_t first = lists.first[row], end = first + lists.counts[row];
  for (uint32_t k = first; k < end; ++k) {
    if (lists.places[k] < own) ++before;
  }
  lists.sorted[first + before] = own;
}

struct RowsToAdd {
  In<float> dy;
  FloatsOut dx;
  NamedRows lists;
  int64_t n, size, inner, outer;
  unsigned long_blocks;
};

// Adds rows from[i], from[i + step], … below count. kAtOnce loads start before
// the first sum.
template <int kEach>
__device__ void AddRows(const In<float>& dy, const uint32_t* from, uint32_t i,
                        uint32_t count, uint32_t step, int64_t base,
                        int64_t inner, float (&sum)[kEach]) {
  ONNX_FP8_KEEP_LOOP
  for (; i + (kAtOnce - 1) * step < count; i += kAtOnce * step) {
    uint32_t rows[kAtOnce];
    float values[kAtOnce][kEach];
    ONNX_FP8_UNROLL
    for (uint32_t v = 0; v < kAtOnce; ++v) rows[v] = from[i + v * step];
    ONNX_FP8_UNROLL
    for (uint32_t v = 0; v < kAtOnce; ++v) {
      LoadElements(dy, base + rows[v] * inner, values[v]);
    }
    ONNX_FP8_UNROLL
    for (uint32_t v = 0; v < kAtOnce; ++v) {
      for (int k = 0; k < kEach; ++k) sum[k] += values[v][k];
    }
  }
  ONNX_FP8_KEEP_LOOP
  for (; i < count; i += step) {
    float values[kEach];
    LoadElements(dy, base + from[i] * inner, values);
    for (int k = 0; k < kEach; ++k) sum[k] += values[k];
  }
}

// For a row of dx that many indices name. Each line of threads adds up some of
// their rows of dy.
template <int kEach>
__device__ void AddLongRows(const RowsToAdd& a, const In<float>& dy) {
  constexpr int kTile = kLanes * kEach;
  __shared__ float parts[kLines][kTile];
  int own = static_cast<int>(threadIdx.x), lane = own % kLanes;
  int line = own / kLanes;
  int64_t tiles = (a.inner + kTile - 1) / kTile;
  int64_t tasks = tiles * a.outer * *a.lists.long_count;
  for (int64_t task = blockIdx.x; task < tasks; task += a.long_blocks) {
    int64_t rest = Quotient(task, tiles), begin = (task - rest * tiles) * kTile;
    int64_t which = Quotient(rest, a.outer), outer = rest - which * a.outer;
    int64_t r = a.lists.long_rows[which], column = begin + lane * kEach;
    float sum[kEach] = {};
    if (column < a.inner) {
      AddRows(dy, a.lists.sorted + a.lists.first[r],
              static_cast<uint32_t>(line), a.lists.counts[r], kLines,
              outer * a.n * a.inner + column, a.inner, sum);
    }
    for (int k = 0; k < kEach; ++k) parts[line][lane * kEach + k] = sum[k];
    __syncthreads();
    if (own < kTile && begin + own < a.inner) {
      float total = 0;
      for (int i = 0; i < kLines; ++i) total += parts[i][own];
      Store(a.dx, (outer * a.size + r) * a.inner + begin + own, total);
    }
    __syncthreads();
  }
}

// Other rows: a thread adds kEach elements of each.
template <int kEach>
__device__ void AddShortRows(const RowsToAdd& a, const In<float>& dy) {
  int64_t block = blockIdx.x - a.long_blocks, width = a.inner / kEach;
  int64_t total = a.outer * a.size * width;
  ONNX_FP8_KEEP_LOOP
  for (int v = 0; v < kAtOnce; ++v) {
    int64_t at = block * kPerBlock + v * kThreads + threadIdx.x;
    if (at >= total) return;
    int64_t row = Quotient(at, width);
    int64_t outer = a.outer > 1 ? Quotient(row, a.size) : 0;
    int64_t r = row - outer * a.size;
    uint32_t count = a.lists.counts[r], first = a.lists.first[r];
    if (count > kFew) continue;
    float sum[kEach] = {};
    AddRows(dy, a.lists.sorted + first, 0, count, 1,
            outer * a.n * a.inner + (at - row * width) * kEach, a.inner, sum);
    if constexpr (kEach == 4) {
      Store4(a.dx, at * kEach, sum);
    } else {
      Store(a.dx, at, sum[0]);
    }
  }
}

// dy (outer, n, inner) → dx (outer, size, inner). The first long_blocks blocks
// add the rows that many indices name.
template <int kEach>
__global__ void __launch_bounds__(kThreads, 4) AddRowsKernel(RowsToAdd a) {
  WithKnownKind(a.dy, [&](const In<float>& dy) {
    if (blockIdx.x < a.long_blocks) {
      AddLongRows<kEach>(a, dy);
    } else {
      AddShortRows<kEach>(a, dy);
    }
  });
}

int64_t GradAxis(const KernelContext& ctx, const Shape& shape) {
  CheckSizes(ctx, shape);
  return AxisIn(ctx, ctx.Int("axis", 0), static_cast<int64_t>(shape.size()));
}

// The kernel's workspace: NamedRows, for these numbers of rows and indices.
struct ListSizes {
  size_t rows, indices;
  // More than kFew indices name each.
  size_t long_rows() const { return std::min(rows, indices / (kFew + 1)); }
  size_t bytes() const {
    return (2 * rows + 2 * indices + long_rows() + 2) * sizeof(uint32_t);
  }
};

ListSizes ListsOf(const KernelContext& ctx) {
  Shape shape = ctx.Ints("shape");
  auto axis = static_cast<size_t>(GradAxis(ctx, shape));
  return {static_cast<size_t>(shape[axis]),
          static_cast<size_t>(Operand(ctx, 1).size())};
}

void GatherGrad(KernelContext& ctx) {
  const Tensor& dy = Operand(ctx, 0);
  Shape shape = ctx.Ints("shape");
  int64_t axis = GradAxis(ctx, shape);
  const ListSizes sizes = ListsOf(ctx);
  AxisView s = ViewAlong(shape, axis);
  Indices indices = IndicesOf(ctx, 1, s.n);
  Shape expected = GatheredShape(shape, axis, ctx.In(1).shape());
  Check(dy.shape() == expected, "[", ctx.Where(), "] expected dy of shape ",
        ToString(expected), ", got ", ToString(dy.shape()));
  FloatsOut dx = FloatsTo(ctx, 0, shape);
  int64_t total = NumElements(shape), n = ctx.In(1).size();
  if (total == 0) return;
  Queue& queue = QueueOf(ctx);
  auto* next = static_cast<uint32_t*>(ctx.Workspace(sizes.bytes()));
  auto take = [&](size_t numbers) {
    return std::exchange(next, next + numbers);
  };
  NamedRows lists = {.counts = take(sizes.rows),
                     .named = take(1),
                     .long_count = take(1),
                     .long_rows = take(sizes.long_rows()),
                     .first = take(sizes.rows),
                     .slots = take(sizes.indices),
                     .places = take(sizes.indices)};
  lists.sorted = lists.slots;
  ONNX_FP8_CUDA(cudaMemsetAsync(
      lists.counts, 0, (sizes.rows + 2) * sizeof(uint32_t), queue.stream()));
  auto start = [&](auto kernel, int64_t blocks, auto... arguments) {
    Launch(kernel, static_cast<unsigned>(blocks), kThreads, 0, queue.stream(),
           arguments...);
  };
  if (n > 0) start(CountIndicesKernel, BlocksFor(n), indices, n, lists);
  start(BeginKernel, BlocksFor(s.n), s.n, lists);
  if (n > 0) {
    start(PlacesKernel, BlocksFor(n), indices, n, lists);
    start(SortIndicesKernel, BlocksFor(n), indices, lists);
  }
  int64_t each = s.inner % 4 == 0 ? 4 : 1;
  int64_t long_tasks = static_cast<int64_t>(sizes.long_rows()) * s.outer *
                       DivideUp(s.inner, kLanes * each);
  auto long_blocks =
      static_cast<unsigned>(std::min<int64_t>(long_tasks, kBlocksOfMany));
  start(each == 4 ? AddRowsKernel<4> : AddRowsKernel<1>,
        long_blocks + DivideUp(total / each, kPerBlock),
        RowsToAdd{{FloatsOf(ctx, 0)},
                  dx,
                  lists,
                  n,
                  s.n,
                  s.inner,
                  s.outer,
                  long_blocks});
}

}  // namespace

void RegisterGather(KernelRegistry& r) {
  r.Add("Gather", Gather, {.moves = true, .many = GatherMany});
  r.Add("GatherElements", GatherElements, {.moves = true});
  r.Add("GatherND", GatherND, {.moves = true});
  r.Add("GatherGrad", GatherGrad,
        {.workspace = [](KernelContext& ctx) { return ListsOf(ctx).bytes(); }},
        kDomain);
}

}  // namespace onnx_fp8::cuda
