// SPDX-License-Identifier: Apache-2.0
//
// Reductions over any set of axes. Each block reduces chunks of the elements of
// some results; a second kernel merges the chunks in an order that depends on
// sizes only. So the bits don't depend on the order of blocks. Sums of all
// elements of many tensors share both kernels. Floats are read four at a time
// where rows are aligned, several times before the first sum.
// Traffic: the operand is read once; the partial results are small.
#include <cmath>
#include <limits>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/many.h"
#include "providers/kernel.h"
#include "providers/ops/reduction.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int64_t kChunk = 16384;  // elements of a row per partial result
constexpr int64_t kRows = 16;      // rows of a thread that reduces columns
constexpr int64_t kShort = 2048;   // elements of a row that gets one warp

// ---- what is reduced

struct SumOp {
  template <typename Acc>
  __device__ static Acc Init() {
    return 0;
  }
  template <typename Acc, typename T>
  __device__ static Acc Add(Acc acc, T x) {
    return acc + static_cast<Acc>(x);
  }
  template <typename Acc>
  __device__ static Acc Merge(Acc a, Acc b) {
    return a + b;
  }
};
struct SquareOp : SumOp {
  template <typename Acc, typename T>
  __device__ static Acc Add(Acc acc, T x) {
    return acc + static_cast<Acc>(x) * static_cast<Acc>(x);
  }
};
struct AbsOp : SumOp {
  template <typename Acc, typename T>
  __device__ static Acc Add(Acc acc, T x) {
    auto v = static_cast<Acc>(x);
    return x < T{0} ? acc - v : acc + v;
  }
};
struct ProductOp {
  template <typename Acc>
  __device__ static Acc Init() {
    return 1;
  }
  template <typename Acc, typename T>
  __device__ static Acc Add(Acc acc, T x) {
    return acc * static_cast<Acc>(x);
  }
  template <typename Acc>
  __device__ static Acc Merge(Acc a, Acc b) {
    return a * b;
  }
};
// Σ e^(x - shift), where the shift is the largest x, or 0 if that is infinite.
struct Exponentials {
  float largest, sum;

  __device__ float Shift() const { return isinf(largest) ? 0.0f : largest; }
  // The sum with the shift of another one.
  __device__ float Relative(const Exponentials& other) const {
    return sum == 0 ? 0.0f : sum * expf(Shift() - other.Shift());
  }
  __device__ operator float() const { return Shift() + logf(sum); }
};
struct LogSumExpOp {
  template <typename Acc>
  __device__ static Acc Init() {
    return {-std::numeric_limits<float>::infinity(), 0};
  }
  __device__ static Exponentials Add(Exponentials acc, float x) {
    if (x > acc.largest) acc = {x, acc.Relative({x, 0})};
    acc.sum += expf(x - acc.Shift());
    return acc;
  }
  __device__ static Exponentials Merge(Exponentials a, Exponentials b) {
    if (a.largest >= b.largest) return {a.largest, a.sum + b.Relative(a)};
    return {b.largest, b.sum + a.Relative(b)};
  }
};
// NaN wins.
struct LargestOp {
  template <typename T>
  __device__ static T Init() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? static_cast<T>(-Limits::infinity())
                                : Limits::lowest();
  }
  template <typename T>
  __device__ static T Add(T acc, T x) {
    return x > acc || x != x ? x : acc;
  }
  template <typename T>
  __device__ static T Merge(T a, T b) {
    return Add(a, b);
  }
};
struct SmallestOp {
  template <typename T>
  __device__ static T Init() {
    using Limits = std::numeric_limits<T>;
    return Limits::has_infinity ? Limits::infinity() : Limits::max();
  }
  template <typename T>
  __device__ static T Add(T acc, T x) {
    return x < acc || x != x ? x : acc;
  }
  template <typename T>
  __device__ static T Merge(T a, T b) {
    return Add(a, b);
  }
};

// What is done with a reduction of n elements.
enum class End : int { kAsItIs, kMean, kRoot, kLog };

// ---- kernels

// Partial results lie as [result][chunk] if rows are reduced, and as
// [chunk][result] if columns are.
template <typename T, typename Acc>
struct Reduction {
  In<T> x;
  Broadcast<1> kept, reduced;
  unsigned chunks;
  int lanes;      // threads side by side, a power of two
  int64_t tasks;  // of rows
  int64_t width;  // columns side by side
  Acc* partial;
};

// Adds elements base + i * stride … + kEach-1 to acc, for i, i + step, … below
// end. kAtOnce loads start before the first number is needed.
template <typename Op, int kAtOnce, int kEach, typename T, typename Acc>
__device__ void AddElements(const In<T>& x, int64_t base, int64_t stride,
                            int64_t i, int64_t end, int step,
                            Acc (&acc)[kEach]) {
  int64_t at = base + i * stride, next = step * stride;
  ONNX_FP8_KEEP_LOOP
  for (; i + (kAtOnce - 1) * step < end; i += kAtOnce * step) {
    T values[kAtOnce][kEach];
    ONNX_FP8_UNROLL
    for (int v = 0; v < kAtOnce; ++v) {
      LoadElements(x, at, values[v]);
      at += next;
    }
    ONNX_FP8_UNROLL
    for (int v = 0; v < kAtOnce; ++v) {
      for (int k = 0; k < kEach; ++k) acc[k] = Op::Add(acc[k], values[v][k]);
    }
  }
  ONNX_FP8_KEEP_LOOP
  for (; i < end; i += step) {
    T values[kEach];
    LoadElements(x, at, values);
    at += next;
    for (int k = 0; k < kEach; ++k) acc[k] = Op::Add(acc[k], values[k]);
  }
}

// Each thread has kEach parts, from `place` on. The block merges them until
// `left` remain: part i gets all parts that lie multiples of `left` behind it.
// REQUIRES: `left` is a power of two.
template <typename Op, int kEach, typename Acc>
__device__ const Acc* MergeBlock(const Acc (&acc)[kEach], int place, int left) {
  __shared__ Acc parts[kThreads * kEach];
  for (int k = 0; k < kEach; ++k) parts[place + k] = acc[k];
  __syncthreads();
  for (int half = kThreads * kEach / 2; half >= left; half /= 2) {
    for (int i = static_cast<int>(threadIdx.x); i < half; i += kThreads) {
      parts[i] = Op::Merge(parts[i], parts[i + half]);
    }
    __syncthreads();
  }
  return parts;
}

// Reduces elements begin + thread, begin + thread + threads, … below end of a
// row that begins at base, or vectors of them. REQUIRES: begin is a multiple of
// 4.
template <typename Op, typename Acc, typename T>
__device__ Acc OfRow(const In<T>& any, int64_t base, int64_t begin, int64_t end,
                     int thread, int threads) {
  Acc acc[1] = {Op::template Init<Acc>()};
  WithKnownKind(any, [&](const In<T>& x) {
    if constexpr (std::is_same_v<T, float>) {
      if (base % 4 == 0) {
        Acc sums[4];
        for (Acc& sum : sums) sum = acc[0];
        AddElements<Op, 4>(x, base, 4, begin / 4 + thread, end / 4, threads,
                           sums);
        acc[0] =
            Op::Merge(Op::Merge(sums[0], sums[1]), Op::Merge(sums[2], sums[3]));
        begin = end / 4 * 4;
      }
    }
    AddElements<Op, 4>(x, base, 1, begin + thread, end, threads, acc);
  });
  return acc[0];
}

// r.lanes threads for each chunk of each result.
template <typename Op, typename T, typename Acc>
__global__ void __launch_bounds__(kThreads) RowsKernel(Reduction<T, Acc> r) {
  int rows = kThreads / r.lanes;
  int thread = static_cast<int>(threadIdx.x) % r.lanes;
  int row = static_cast<int>(threadIdx.x) / r.lanes;
  int64_t first = static_cast<int64_t>(blockIdx.x) * rows, task = first + row;
  Acc acc[1] = {Op::template Init<Acc>()};
  if (task < r.tasks) {
    int64_t result = Quotient(task, r.chunks);
    int64_t chunk = task - result * r.chunks, base[1];
    Offsets(r.kept, result, base);
    int64_t begin = chunk * kChunk, end = begin + kChunk;
    if (end > r.reduced.n) end = r.reduced.n;
    if (r.reduced.axes == 1) {
      acc[0] = OfRow<Op, Acc>(r.x, base[0], begin, end, thread, r.lanes);
    } else {
      for (int64_t i = begin + thread; i < end; i += r.lanes) {
        int64_t offset[1];
        Offsets(r.reduced, i, offset);
        acc[0] = Op::Add(acc[0], r.x.At(base[0] + offset[0]));
      }
    }
  }
  const Acc* parts = MergeBlock<Op>(acc, thread * rows + row, rows);
  int own = static_cast<int>(threadIdx.x);
  if (own < rows && first + own < r.tasks) r.partial[first + own] = parts[own];
}

// The sum of all elements of a tensor, with the order and the bits of
// RowsKernel and MergeKernel.
struct WholeSum {
  FloatsIn x;
  int64_t n;
  float *partial, *y;
};

template <typename Op>
__global__ void __launch_bounds__(kThreads)
    WholeSumsKernel(Many<WholeSum> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const WholeSum w = many.tensors[tensor];
  unsigned chunk = blockIdx.x - many.begin[tensor];
  int64_t begin = chunk * kChunk;
  int64_t end = begin + kChunk;
  if (end > w.n) end = w.n;
  int thread = static_cast<int>(threadIdx.x);
  float acc[1] = {
      OfRow<Op, float>(In<float>{w.x}, 0, begin, end, thread, kThreads)};
  const float* parts = MergeBlock<Op>(acc, thread, 1);
  if (thread == 0) w.partial[chunk] = parts[0];
}

// A block for each tensor.
template <typename Op>
__global__ void __launch_bounds__(kThreads)
    MergeWholeKernel(Many<WholeSum> many) {
  auto tensor = static_cast<int>(blockIdx.x);
  const WholeSum w = many.tensors[tensor];
  unsigned count = BlocksOf(many, tensor);
  float acc[1] = {Op::template Init<float>()};
  for (unsigned i = threadIdx.x; i < count; i += kThreads) {
    acc[0] = Op::Merge(acc[0], w.partial[i]);
  }
  const float* parts = MergeBlock<Op>(acc, static_cast<int>(threadIdx.x), 1);
  if (threadIdx.x == 0) *w.y = parts[0];
}

// Results that lie side by side: a block for r.lanes times kEach of them and a
// chunk of rows.
template <typename Op, int kEach, typename T, typename Acc>
__global__ void __launch_bounds__(kThreads, 1)
    ColumnsKernel(Reduction<T, Acc> r) {
  int lane = static_cast<int>(threadIdx.x) % r.lanes;
  int line = static_cast<int>(threadIdx.x) / r.lanes;
  int lines = kThreads / r.lanes, tile = r.lanes * kEach;
  auto tiles = static_cast<unsigned>((r.width + tile - 1) / tile);
  unsigned rest = blockIdx.x / tiles, chunk = rest % r.chunks;
  int64_t first = static_cast<int64_t>(blockIdx.x % tiles) * tile;
  int64_t group = rest / r.chunks;
  Acc acc[kEach];
  for (Acc& a : acc) a = Op::template Init<Acc>();
  if (first + lane * kEach < r.width) {
    int64_t base[1];
    Offsets(r.kept, group * r.width + first + lane * kEach, base);
    int64_t rows = static_cast<int64_t>(lines) * kRows;
    int64_t begin = chunk * rows + line, end = (chunk + 1) * rows;
    if (end > r.reduced.n) end = r.reduced.n;
    if (r.reduced.axes == 1) {
      WithKnownKind(r.x, [&](const In<T>& x) {
        AddElements<Op, 8>(x, base[0], r.reduced.strides[0][0], begin, end,
                           lines, acc);
      });
    } else {
      for (int64_t i = begin; i < end; i += lines) {
        int64_t offset[1];
        Offsets(r.reduced, i, offset);
        T values[kEach];
        LoadElements(r.x, base[0] + offset[0], values);
        for (int k = 0; k < kEach; ++k) acc[k] = Op::Add(acc[k], values[k]);
      }
    }
  }
  auto own = static_cast<int>(threadIdx.x);
  const Acc* parts = MergeBlock<Op>(acc, own * kEach, tile);
  if (own >= tile || first + own >= r.width) return;
  r.partial[chunk * r.kept.n + group * r.width + first + own] = parts[own];
}

// A block merges the chunks of `lanes` results.
template <typename Op, typename Acc, typename Y>
__global__ void __launch_bounds__(kThreads)
    MergeKernel(const Acc* partial, int64_t chunks, int64_t chunk_step,
                int64_t results, int64_t result_step, int lanes, int64_t n,
                End end, Out<Y> y) {
  auto own = static_cast<int>(threadIdx.x);
  int64_t i = static_cast<int64_t>(blockIdx.x) * lanes + own % lanes;
  Acc acc[1] = {Op::template Init<Acc>()};
  if (i < results) {
    const Acc* from = partial + i * result_step;
    for (int64_t c = own / lanes; c < chunks; c += kThreads / lanes) {
      acc[0] = Op::Merge(acc[0], from[c * chunk_step]);
    }
  }
  const Acc* parts = MergeBlock<Op>(acc, own, lanes);
  if (own >= lanes || i >= results) return;
  AmaxPart unused;
  if constexpr (std::is_same_v<Y, float>) {
    float v = parts[own];
    if (end == End::kMean) v /= static_cast<float>(n);
    if (end == End::kRoot) v = sqrtf(v);
    if (end == End::kLog) v = logf(v);
    y.Put(i, v, unused);
  } else {
    y.Put(i, static_cast<Y>(parts[own]), unused);
  }
}

// ---- on the host

Broadcast<1> WalkOf(const KernelContext& ctx, const BroadcastPlan& plan) {
  Check(plan.sizes.size() <= kMostAxes, "[", ctx.Where(), "] expected at most ",
        kMostAxes, " axes that can't be merged, got ", plan.sizes.size());
  Broadcast<1> walk = {static_cast<int>(plan.sizes.size()), plan.n, {}, {}};
  for (size_t a = 0; a < plan.sizes.size(); ++a) {
    walk.sizes[a] = plan.sizes[a];
    walk.strides[0][a] = plan.strides[a][0];
  }
  return walk;
}

// How threads share the work.
struct Division {
  int64_t width;   // results side by side
  int64_t each;    // columns of a thread
  int64_t chunks;  // of each result
  int lanes;       // threads side by side
};

// REQUIRES: there are results.
template <typename T>
Division Divide(const ReductionLayout& l) {
  Division d = {.width = l.kept.sizes.back(), .each = 1, .lanes = 1};
  if (std::is_same_v<T, float> && d.width % 4 == 0) d.each = 4;
  int64_t n = l.reduced.n, chunk = kChunk;
  if (l.inner_reduced) {
    d.lanes = l.kept.n > 1 && n <= kShort ? 32 : kThreads;
  } else {
    while (d.lanes < 32 && d.lanes * d.each < d.width) d.lanes *= 2;
    chunk = kRows * (kThreads / d.lanes);
  }
  d.chunks = std::max<int64_t>(DivideUp(n, chunk), 1);
  return d;
}

// The kernel's workspace: a partial result of each chunk.
template <typename T, typename Acc>
size_t PartialBytes(const ReductionLayout& l) {
  if (l.kept.n == 0) return 0;
  return static_cast<size_t>(l.kept.n * Divide<T>(l).chunks) * sizeof(Acc);
}

template <typename Op, typename T, typename Acc>
void Reduce(KernelContext& ctx, End end) {
  const Tensor& x = Operand(ctx, 0);
  ReductionLayout l = ReductionOf(ctx, x);
  Out<T> y = OutTo<T>(ctx, 0, l.shape);
  int64_t results = l.kept.n, n = l.reduced.n;
  if (results == 0) return;
  Queue& queue = QueueOf(ctx);
  const Division d = Divide<T>(l);
  int64_t chunks = d.chunks;
  Reduction<T, Acc> r = {.x = InOf<T>(ctx, 0),
                         .kept = WalkOf(ctx, l.kept),
                         .reduced = WalkOf(ctx, l.reduced),
                         .chunks = static_cast<unsigned>(chunks),
                         .lanes = d.lanes,
                         .tasks = results * chunks,
                         .width = d.width};
  r.partial = static_cast<Acc*>(ctx.Workspace(PartialBytes<T, Acc>(l)));
  auto start = [&](auto kernel, int64_t blocks) {
    Launch(kernel, static_cast<unsigned>(blocks), kThreads, 0, queue.stream(),
           r);
  };
  if (l.inner_reduced) {
    start(RowsKernel<Op, T, Acc>, DivideUp(r.tasks, kThreads / r.lanes));
  } else {
    int64_t tiles = DivideUp(r.width, r.lanes * d.each);
    int64_t blocks = results / r.width * tiles * chunks;
    if constexpr (std::is_same_v<T, float>) {
      if (d.each == 4) start(ColumnsKernel<Op, 4, T, Acc>, blocks);
    }
    if (d.each == 1) start(ColumnsKernel<Op, 1, T, Acc>, blocks);
  }
  // Threads side by side read chunks of a row, or results of columns.
  int lanes = kThreads;
  if (l.inner_reduced && chunks > 1) lanes = 1;
  if (!l.inner_reduced && chunks >= 8) lanes = 8;
  Launch(MergeKernel<Op, Acc, T>,
         static_cast<unsigned>(DivideUp(results, lanes)), kThreads, 0,
         queue.stream(), static_cast<const Acc*>(r.partial), chunks,
         l.inner_reduced ? 1 : results, results, l.inner_reduced ? chunks : 1,
         lanes, n, end, y);
}

// Calls f<T, Acc>() for the elements of operand 0 and their partial sums.
template <typename F>
void ForSums(const KernelContext& ctx, F f) {
  DType dtype = Operand(ctx, 0).dtype();
  if (dtype == DType::kInt64) return f.template operator()<int64_t, uint64_t>();
  if (dtype == DType::kInt32) return f.template operator()<int32_t, uint32_t>();
  StorageOf(ctx, dtype);
  f.template operator()<float, float>();
}

// The same for their largest or smallest ones.
template <typename F>
void ForExtremes(const KernelContext& ctx, F f) {
  DType dtype = Operand(ctx, 0).dtype();
  if (dtype == DType::kBool) {  // bytes of 0 or 1
    return f.template operator()<bool, bool>();
  }
  ForNumeric(dtype, ctx.Where(),
             [&]<typename T>() { f.template operator()<T, T>(); });
}

template <typename Op>
void Sums(KernelContext& ctx) {
  ForSums(ctx, [&]<typename T, typename Acc>() {
    Reduce<Op, T, Acc>(ctx, End::kAsItIs);
  });
}

size_t SumsWorkspace(KernelContext& ctx) {
  size_t bytes = 0;
  ForSums(ctx, [&]<typename T, typename Acc>() {
    bytes = PartialBytes<T, Acc>(ReductionOf(ctx, ctx.In(0)));
  });
  return bytes;
}

// Several nodes. Nodes that do not sum all elements run alone.
template <typename Op>
void SumsOfMany(std::span<KernelContext> nodes) {
  std::vector<WholeSum> sums;
  for (KernelContext& ctx : nodes) {
    const Tensor& x = Operand(ctx, 0);
    ReductionLayout l = ReductionOf(ctx, x);
    if (x.dtype() == DType::kInt64 || l.kept.n != 1 || !l.inner_reduced) {
      Sums<Op>(ctx);
    } else {
      size_t bytes = PartialBytes<float, float>(l);
      sums.push_back({FloatsOf(ctx, 0), x.size(),
                      static_cast<float*>(ctx.Workspace(bytes)),
                      static_cast<float*>(FloatsTo(ctx, 0, l.shape).data)});
    }
  }
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  auto chunks = [](const WholeSum& w) {
    return static_cast<unsigned>(std::max<int64_t>(DivideUp(w.n, kChunk), 1));
  };
  ForMany(sums, chunks, [&](const Many<WholeSum>& many) {
    Launch(WholeSumsKernel<Op>, many.blocks, kThreads, 0, stream, many);
    Launch(MergeWholeKernel<Op>, static_cast<unsigned>(many.count), kThreads, 0,
           stream, many);
  });
}

template <typename Op, End kEnd>
void FloatSums(KernelContext& ctx) {
  StorageOf(ctx, Operand(ctx, 0).dtype());
  Reduce<Op, float, float>(ctx, kEnd);
}

void LogSumExp(KernelContext& ctx) {
  StorageOf(ctx, Operand(ctx, 0).dtype());
  Reduce<LogSumExpOp, float, Exponentials>(ctx, End::kAsItIs);
}

size_t LogSumExpWorkspace(KernelContext& ctx) {
  return PartialBytes<float, Exponentials>(ReductionOf(ctx, Operand(ctx, 0)));
}

template <typename Op>
void Extremes(KernelContext& ctx) {
  ForExtremes(ctx, [&]<typename T, typename Acc>() {
    Reduce<Op, T, Acc>(ctx, End::kAsItIs);
  });
}

size_t ExtremesWorkspace(KernelContext& ctx) {
  size_t bytes = 0;
  ForExtremes(ctx, [&]<typename T, typename Acc>() {
    bytes = PartialBytes<T, Acc>(ReductionOf(ctx, ctx.In(0)));
  });
  return bytes;
}

}  // namespace

void RegisterReduce(KernelRegistry& r) {
  const KernelTraits kept = {.narrow_in = {0}, .workspace = SumsWorkspace};
  r.Add("ReduceSum", Sums<SumOp>, kept);
  KernelTraits squares = kept;
  squares.many = SumsOfMany<SquareOp>;
  r.Add("ReduceSumSquare", Sums<SquareOp>, squares);
  r.Add("ReduceL1", Sums<AbsOp>, kept);
  r.Add("ReduceL2", FloatSums<SquareOp, End::kRoot>, kept);
  r.Add("ReduceLogSum", FloatSums<SumOp, End::kLog>, kept);
  r.Add("ReduceMean", FloatSums<SumOp, End::kMean>, kept);
  r.Add("ReduceProd", Sums<ProductOp>, kept);
  KernelTraits exponentials = kept;
  exponentials.workspace = LogSumExpWorkspace;
  r.Add("ReduceLogSumExp", LogSumExp, exponentials);
  const KernelTraits extremes = {.workspace = ExtremesWorkspace};
  r.Add("ReduceMax", Extremes<LargestOp>, extremes);
  r.Add("ReduceMin", Extremes<SmallestOp>, extremes);
}

}  // namespace onnx_fp8::cuda
