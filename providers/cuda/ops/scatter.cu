// SPDX-License-Identifier: Apache-2.0
//
// A copy of `data` with elements set, or combined, at computed indices. Each
// place of the result has a list of the updates that hit it, in their order,
// and a thread of its own combines them: results are the CPU's, bit by bit, and
// do not depend on the order of threads. Traffic: data, indices and updates are
// read once, the result is written once. Besides, two numbers of 32 bits for
// each place and one for each update are written and read a few times.
#include <algorithm>
#include <span>
#include <type_traits>

#include "providers/cuda/ops/indices.h"
#include "providers/kernel.h"
#include "providers/ops/for_width.h"
#include "providers/ops/scatter_reduction.h"

namespace onnx_fp8::cuda {
namespace {

// ---- the lists

struct Lists {
  int64_t updates, places;
  uint32_t* count;  // for each place
  uint32_t* first;  // where the list of a place begins
  uint32_t* list;   // numbers of updates
  uint32_t* taken;  // of `list`
};

// Where an update goes: offsets are multiples of `block`.
template <typename Places>
__device__ int64_t PlaceOf(const Places& places, int64_t i, int64_t block) {
  int64_t offset = places.Offset(i);
  return offset < 0 ? -1 : offset / block;
}

template <typename Places>
__global__ void __launch_bounds__(kThreads)
    CountKernel(Places places, int64_t block, Lists l) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= l.updates) return;
  int64_t place = PlaceOf(places, i, block);
  if (place >= 0) atomicAdd(&l.count[place], 1u);
}

// It does not matter where a list lies.
__global__ void __launch_bounds__(kThreads) ReserveKernel(Lists l) {
  int64_t place = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (place >= l.places || l.count[place] == 0) return;
  l.first[place] = atomicAdd(l.taken, l.count[place]);
  l.count[place] = 0;
}

template <typename Places>
__global__ void __launch_bounds__(kThreads)
    EnlistKernel(Places places, int64_t block, Lists l) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= l.updates) return;
  int64_t place = PlaceOf(places, i, block);
  if (place < 0) return;
  uint32_t at = l.first[place] + atomicAdd(&l.count[place], 1u);
  l.list[at] = static_cast<uint32_t>(i);
}

// Lets the number at `root` sink to its place in a heap of n numbers, whose
// largest one is the first.
__device__ void Sink(uint32_t* heap, uint32_t root, uint32_t n) {
  uint32_t value = heap[root];
  for (uint32_t child; (child = 2 * root + 1) < n; root = child) {
    if (child + 1 < n && heap[child + 1] > heap[child]) ++child;
    if (heap[child] <= value) break;
    heap[root] = heap[child];
  }
  heap[root] = value;
}

// A heap sort: lists are short, but one may be long.
__global__ void __launch_bounds__(kThreads) SortKernel(Lists l) {
  int64_t place = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (place >= l.places || l.count[place] < 2) return;
  uint32_t* list = l.list + l.first[place];
  uint32_t n = l.count[place];
  for (uint32_t root = n / 2; root-- > 0;) Sink(list, root, n);
  for (uint32_t end = n - 1; end > 0; --end) {
    uint32_t largest = list[0];
    list[0] = list[end];
    list[end] = largest;
    Sink(list, 0, end);
  }
}

// ---- the result

template <typename T>
__global__ void __launch_bounds__(kThreads)
    CombineKernel(Lists l, ScatterReduction reduction, int64_t block,
                  const T* data, const T* updates, T* y) {
  int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= l.places * block) return;
  int64_t place = at / block, within = at % block;
  T value = data[at];
  if (uint32_t n = l.count[place]; n > 0) {
    const uint32_t* list = l.list + l.first[place];
    for (uint32_t i = reduction == ScatterReduction::kNone ? n - 1 : 0; i < n;
         ++i) {
      value = Combine(reduction, value, updates[list[i] * block + within]);
    }
  }
  y[at] = value;
}

// Bytes of the lists.
size_t ListBytes(int64_t places, int64_t updates) {
  return static_cast<size_t>(1 + 2 * places + updates) * sizeof(uint32_t);
}

template <typename Places>
Lists MakeLists(const KernelContext& ctx, const Places& places, int64_t updates,
                int64_t block) {
  Lists l = {updates, ctx.In(0).size() / block, nullptr, nullptr, nullptr,
             nullptr};
  Check(updates < int64_t{1} << 32, "[", ctx.Where(),
        "] expected fewer than 2^32 updates, got ", updates);
  cudaStream_t stream = QueueOf(ctx).stream();
  auto size = static_cast<size_t>(l.places);
  l.taken = static_cast<uint32_t*>(ctx.Workspace(ListBytes(l.places, updates)));
  l.count = l.taken + 1;
  l.first = l.count + size;
  l.list = l.first + size;
  ONNX_FP8_CUDA(
      cudaMemsetAsync(l.taken, 0, (1 + size) * sizeof(uint32_t), stream));
  if (updates == 0) return l;
  Launch(CountKernel<Places>, BlocksFor(updates), kThreads, 0, stream, places,
         block, l);
  Launch(ReserveKernel, BlocksFor(l.places), kThreads, 0, stream, l);
  Launch(EnlistKernel<Places>, BlocksFor(updates), kThreads, 0, stream, places,
         block, l);
  Launch(SortKernel, BlocksFor(l.places), kThreads, 0, stream, l);
  return l;
}

template <typename T>
void StartCombine(const KernelContext& ctx, const Lists& l,
                  ScatterReduction reduction, int64_t block, Tensor& y) {
  Launch(CombineKernel<T>, BlocksFor(y.size()), kThreads, 0,
         QueueOf(ctx).stream(), l, reduction, block,
         static_cast<const T*>(ctx.In(0).raw()),
         static_cast<const T*>(ctx.In(2).raw()), static_cast<T*>(y.raw()));
}

// y = data with `updates` blocks of elements combined at `places`.
template <typename Places>
void Update(KernelContext& ctx, const Places& places, int64_t updates,
            int64_t block) {
  auto reduction = ReadScatterReduction(ctx);
  const Tensor& data = ctx.In(0);
  Tensor& y = ctx.Out(0, data.dtype(), data.shape());
  if (y.size() == 0) return;
  Lists l = MakeLists(ctx, places, updates, block);
  if (reduction == ScatterReduction::kNone) {
    return ForWidth(ByteSize(data.dtype()), [&]<typename T>() {
      StartCombine<T>(ctx, l, reduction, block, y);
    });
  }
  Check(!IsHalf(data.dtype()), "[", ctx.Where(), "] expected float, got ",
        Name(data.dtype()));
  ForNumeric(data.dtype(), ctx.Where(), [&]<typename T>() {
    StartCombine<T>(ctx, l, reduction, block, y);
  });
}

size_t ElementsWorkspace(KernelContext& ctx) {
  const Tensor &data = Operand(ctx, 0), &updates = Operand(ctx, 2);
  return ListBytes(data.size(), updates.size());
}

void ScatterElements(KernelContext& ctx) {
  const Tensor &data = Operand(ctx, 0), &updates = Operand(ctx, 2);
  CheckSameDType(ctx, data, updates);
  int64_t axis = AxisIn(ctx, ctx.Int("axis", 0), data.rank());
  IndexedPlaces places = ElementPlacesIn(ctx, data, axis);
  Check(ctx.In(1).shape() == updates.shape(), "[", ctx.Where(),
        "] expected indices and updates of one shape, got ",
        ToString(ctx.In(1).shape()), " and ", ToString(updates.shape()));
  Update(ctx, places, updates.size(), 1);
}

// data (d0 … dk-1, inner…), indices (m…, k), updates (m…, inner…)
void ScatterND(KernelContext& ctx) {
  const Tensor &data = Operand(ctx, 0), &indices = Operand(ctx, 1);
  const Tensor& updates = Operand(ctx, 2);
  CheckSameDType(ctx, data, updates);
  CheckIndexType(ctx, 1);
  Check(indices.rank() > 0 && indices.dim(-1) <= data.rank() &&
            indices.dim(-1) <= kMostAxes,
        "[", ctx.Where(), "] expected indices into ", data.rank(),
        " axes, got ", ToString(indices.shape()));
  Shape expected(indices.shape().begin(), indices.shape().end() - 1);
  int64_t count = NumElements(expected);
  expected.insert(expected.end(), data.shape().begin() + indices.dim(-1),
                  data.shape().end());
  Check(updates.shape() == expected, "[", ctx.Where(),
        "] expected updates of shape ", ToString(expected), ", got ",
        ToString(updates.shape()));
  if (data.size() == 0) {
    ctx.Out(0, data.dtype(), data.shape());
    return;
  }
  Tuples tuples = TuplesInto(ctx, data, 0);
  Update(ctx, tuples, count, tuples.block);
}

// A list for each block of inner elements.
size_t BlocksWorkspace(KernelContext& ctx) {
  const Shape &data = Operand(ctx, 0).shape(),
              &indices = Operand(ctx, 1).shape();
  if (indices.empty()) return 0;  // the kernel refuses it
  auto depth = static_cast<size_t>(std::clamp<int64_t>(
      indices.back(), 0, static_cast<int64_t>(data.size())));
  return ListBytes(NumElements(std::span(data).first(depth)),
                   NumElements(std::span(indices).first(indices.size() - 1)));
}

}  // namespace

void RegisterScatter(KernelRegistry& r) {
  r.Add("ScatterElements", ScatterElements, {.workspace = ElementsWorkspace});
  r.Add("ScatterND", ScatterND, {.workspace = BlocksWorkspace});
  r.Add("Scatter", ScatterElements, {.workspace = ElementsWorkspace});
}

}  // namespace onnx_fp8::cuda
