// SPDX-License-Identifier: Apache-2.0
//
// Gather and its gradient. Traffic: Gather reads and writes the result's bytes.
// GatherGrad reads dy once and writes dx once; the order of equal indices costs
// n²/2 comparisons, which stay in shared memory.
#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/ops/indices.h"
#include "providers/cuda/register.h"
#include "providers/for_width.h"

namespace onnx_fp8::cuda {
namespace {

// `shape` with the axis replaced by the axes of the indices.
Shape GatheredShape(const Shape& shape, int64_t axis, const Shape& indices) {
  Shape out(shape.begin(), shape.begin() + axis);
  out.insert(out.end(), indices.begin(), indices.end());
  out.insert(out.end(), shape.begin() + axis + 1, shape.end());
  return out;
}

// x (outer, size, inner), indices (n) → y (outer, n, inner); 0 for an index
// that is outside.
struct Gathering {
  const void* x;
  Indices indices;
  int64_t n, inner, total;
  void* y;
  size_t width;  // bytes of an element
};

template <typename T>
__global__ void __launch_bounds__(kThreads) GatherKernel(Many<Gathering> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Gathering g = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t at = block * kThreads + threadIdx.x;
  if (at >= g.total) return;
  int64_t row = at / g.inner, index = g.indices.At(row % g.n);
  int64_t from = (row / g.n * g.indices.size + index) * g.inner + at % g.inner;
  static_cast<T*>(g.y)[at] =
      index < 0 ? T{0} : static_cast<const T*>(g.x)[from];
}

Gathering GatheringOf(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  Operand(ctx, 1);
  Indices indices = IndicesOf(ctx, 1, x.dim(axis));
  Tensor& y =
      ctx.Out(0, x.dtype(), GatheredShape(x.shape(), axis, ctx.In(1).shape()));
  return {
      x.raw(),  indices, ctx.In(1).size(),   ViewAlong(x.shape(), axis).inner,
      y.size(), y.raw(), ByteSize(x.dtype())};
}

void GatherMany(std::span<KernelContext> nodes) {
  std::vector<Gathering> all;
  for (KernelContext& ctx : nodes) all.push_back(GatheringOf(ctx));
  for (size_t width : {1, 2, 4, 8}) {
    auto blocks = [&](const Gathering& g) {
      return g.width == width ? BlocksFor(g.total) : 0;
    };
    ForMany(all, blocks, [&](const Many<Gathering>& many) {
      ForWidth(width, [&]<typename T>() {
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
    GatherElementsKernel(ElementPlaces places, const T* x, T* y) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= places.rest.n) return;
  int64_t offset = places.Offset(at);
  y[at] = offset < 0 ? T{0} : x[offset];
}

void GatherElements(KernelContext& ctx) {
  const Tensor& x = Operand(ctx, 0);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), x.rank());
  ElementPlaces places = ElementPlacesIn(ctx, x, axis);
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

// rank[i]: how many equal indices come before index i. counts[r]: how many
// indices name row r.
__global__ void __launch_bounds__(kThreads)
    RankKernel(Indices indices, int64_t n, uint32_t* rank, uint32_t* counts) {
  __shared__ int64_t tile[kThreads];
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  int64_t own = i < n ? indices.At(i) : -1;
  uint32_t before = 0;
  int64_t last = static_cast<int64_t>(blockIdx.x) * kThreads;
  for (int64_t first = 0; first <= last; first += kThreads) {
    int64_t j = first + threadIdx.x;
    tile[threadIdx.x] = j < n ? indices.At(j) : -1;
    __syncthreads();
    for (int k = 0; k < kThreads; ++k) {
      if (first + k < i && tile[k] == own) ++before;
    }
    __syncthreads();
  }
  if (i >= n || own < 0) return;
  rank[i] = before;
  atomicAdd(&counts[own], 1u);
}

// first[r] = the sum of counts before r; by one block.
__global__ void __launch_bounds__(1024)
    ScanKernel(const uint32_t* counts, int64_t rows, uint32_t* first) {
  __shared__ uint32_t sums[1024];
  uint32_t carried = 0;
  for (int64_t begin = 0; begin < rows; begin += 1024) {
    int64_t r = begin + threadIdx.x;
    uint32_t own = r < rows ? counts[r] : 0;
    sums[threadIdx.x] = own;
    __syncthreads();
    for (unsigned step = 1; step < 1024; step *= 2) {
      uint32_t left = threadIdx.x >= step ? sums[threadIdx.x - step] : 0;
      __syncthreads();
      sums[threadIdx.x] += left;
      __syncthreads();
    }
    if (r < rows) first[r] = carried + sums[threadIdx.x] - own;
    carried += sums[1023];
    __syncthreads();
  }
}

// places[first[r] … ] = the places of the indices that name row r, in order.
__global__ void __launch_bounds__(kThreads)
    PlacesKernel(Indices indices, int64_t n, const uint32_t* rank,
                 const uint32_t* first, uint32_t* places) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= n) return;
  int64_t row = indices.At(i);
  if (row >= 0) places[first[row] + rank[i]] = static_cast<uint32_t>(i);
}

struct RowsToAdd {
  FloatsIn dy;
  FloatsOut dx;
  const uint32_t *first, *counts, *places;
  int64_t n, size, inner, total;
};

// dy (outer, n, inner) → dx (outer, size, inner). A thread adds the rows of its
// element in the order of the indices.
__global__ void __launch_bounds__(kThreads) AddRowsKernel(RowsToAdd a) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= a.total) return;
  int64_t row = at / a.inner, column = at % a.inner;
  int64_t outer = row / a.size, r = row % a.size;
  float sum = 0;
  for (uint32_t p = a.first[r]; p < a.first[r] + a.counts[r]; ++p) {
    sum += Load(a.dy, (outer * a.n + a.places[p]) * a.inner + column);
  }
  Store(a.dx, at, sum);
}

void GatherGrad(KernelContext& ctx) {
  const Tensor& dy = Operand(ctx, 0);
  Shape shape = ctx.Ints("shape");
  CheckSizes(ctx, shape);
  int64_t axis =
      AxisIn(ctx, ctx.Int("axis", 0), static_cast<int64_t>(shape.size()));
  Operand(ctx, 1);
  AxisView s = ViewAlong(shape, axis);
  Indices indices = IndicesOf(ctx, 1, s.n);
  Shape expected = GatheredShape(shape, axis, ctx.In(1).shape());
  Check(dy.shape() == expected, "[", ctx.Where(), "] expected dy of shape ",
        ToString(expected), ", got ", ToString(dy.shape()));
  FloatsOut dx = FloatsTo(ctx, 0, shape);
  int64_t total = NumElements(shape), n = ctx.In(1).size();
  if (total == 0) return;
  Queue& queue = QueueOf(ctx);
  auto rows = static_cast<size_t>(s.n), count = static_cast<size_t>(n);
  auto* counts = static_cast<uint32_t*>(
      queue.Scratch((2 * rows + 2 * count) * sizeof(uint32_t)));
  uint32_t *first = counts + rows, *rank = first + rows, *places = rank + count;
  ONNX_FP8_CUDA(
      cudaMemsetAsync(counts, 0, rows * sizeof(uint32_t), queue.stream()));
  if (n > 0) {
    Launch(RankKernel, BlocksFor(n), kThreads, 0, queue.stream(), indices, n,
           rank, counts);
  }
  Launch(ScanKernel, 1, 1024, 0, queue.stream(), counts, s.n, first);
  if (n > 0) {
    Launch(PlacesKernel, BlocksFor(n), kThreads, 0, queue.stream(), indices, n,
           rank, first, places);
  }
  Launch(AddRowsKernel, BlocksFor(total), kThreads, 0, queue.stream(),
         RowsToAdd{FloatsOf(ctx, 0), dx, first, counts, places, n, s.n, s.inner,
                   total});
}

}  // namespace

void RegisterGather(KernelRegistry& r) {
  r.Add("Gather", Gather, {.moves = true, .many = GatherMany});
  r.Add("GatherElements", GatherElements, {.moves = true});
  r.Add("GatherND", GatherND, {.moves = true});
  r.Add("GatherGrad", GatherGrad, {}, kDomain);
}

}  // namespace onnx_fp8::cuda
