// SPDX-License-Identifier: Apache-2.0
//
// Reductions over any set of axes. Each block reduces a chunk of the elements
// of one result, or of several that lie side by side; a second kernel merges
// the chunks in their order. So the bits don't depend on the order of blocks.
// Sums of all elements of many tensors share both kernels.
// Traffic: the operand is read once; the partial results are small.
#include <cmath>
#include <limits>

#include "providers/cuda/core/broadcast.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/register.h"
#include "providers/reduction.h"

namespace onnx_fp8::cuda {
namespace {

constexpr int64_t kChunk = 16384;  // elements of a row per partial result
constexpr int64_t kRows = 256;     // rows per partial result of a column
constexpr int kLanes = 32, kLines = 8;

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

template <typename T, typename Acc>
struct Reduction {
  In<T> x;
  Broadcast<1> kept, reduced;
  int64_t chunks;
  int64_t width;  // columns side by side
  Acc* partial;
};

// All threads of a block merge what they have. The first one gets the result.
template <typename Op, typename Acc>
__device__ Acc MergeBlock(Acc acc) {
  __shared__ Acc parts[kThreads];
  parts[threadIdx.x] = acc;
  __syncthreads();
  for (int half = kThreads / 2; half > 0; half /= 2) {
    if (static_cast<int>(threadIdx.x) < half) {
      parts[threadIdx.x] =
          Op::Merge(parts[threadIdx.x], parts[threadIdx.x + half]);
    }
    __syncthreads();
  }
  return parts[0];
}

// A block for each chunk of each result.
template <typename Op, typename T, typename Acc>
__global__ void __launch_bounds__(kThreads) RowsKernel(Reduction<T, Acc> r) {
  int64_t task = blockIdx.x;
  int64_t result = task / r.chunks, chunk = task % r.chunks;
  int64_t base[1];
  Offsets(r.kept, result, base);
  int64_t end = (chunk + 1) * kChunk;
  if (end > r.reduced.n) end = r.reduced.n;
  Acc acc = Op::template Init<Acc>();
  for (int64_t i = chunk * kChunk + threadIdx.x; i < end; i += kThreads) {
    int64_t offset[1];
    Offsets(r.reduced, i, offset);
    acc = Op::Add(acc, r.x.At(base[0] + offset[0]));
  }
  acc = MergeBlock<Op>(acc);
  if (threadIdx.x == 0) r.partial[result * r.chunks + chunk] = acc;
}

// The sum of all elements of a tensor, with the order and the bits of
// RowsKernel and MergeKernel.
struct WholeSum {
  FloatsIn x;
  int64_t n;
  FloatsOut y;
};

template <typename Op>
__global__ void __launch_bounds__(kThreads)
    WholeSumsKernel(Many<WholeSum> many, float* partial) {
  int tensor = TensorOf(many, blockIdx.x);
  const WholeSum w = many.tensors[tensor];
  int64_t chunk = blockIdx.x - many.begin[tensor];
  int64_t end = (chunk + 1) * kChunk;
  if (end > w.n) end = w.n;
  auto acc = Op::template Init<float>();
  for (int64_t i = chunk * kChunk + threadIdx.x; i < end; i += kThreads) {
    acc = Op::Add(acc, Load(w.x, i));
  }
  acc = MergeBlock<Op>(acc);
  if (threadIdx.x == 0) partial[blockIdx.x] = acc;
}

template <typename Op>
__global__ void __launch_bounds__(kThreads)
    MergeWholeKernel(Many<WholeSum> many, const float* partial) {
  int tensor = static_cast<int>(threadIdx.x);
  if (tensor >= many.count) return;
  unsigned first = many.begin[tensor], parts = BlocksOf(many, tensor);
  float acc = partial[first];
  for (unsigned i = 1; i < parts; ++i) acc = Op::Merge(acc, partial[first + i]);
  Store(many.tensors[tensor].y, 0, acc);
}

// Results that lie side by side: a block for 32 of them and a chunk of rows.
template <typename Op, typename T, typename Acc>
__global__ void __launch_bounds__(kLanes* kLines)
    ColumnsKernel(Reduction<T, Acc> r) {
  __shared__ Acc parts[kLines][kLanes];
  int lane = threadIdx.x % kLanes, line = threadIdx.x / kLanes;
  int64_t tiles = (r.width + kLanes - 1) / kLanes;
  int64_t task = blockIdx.x;
  int64_t chunk = task % r.chunks, tile = task / r.chunks % tiles;
  int64_t group = task / r.chunks / tiles;
  int64_t column = tile * kLanes + lane;
  int64_t result = group * r.width + column;
  Acc acc = Op::template Init<Acc>();
  if (column < r.width) {
    int64_t base[1];
    Offsets(r.kept, result, base);
    int64_t end = (chunk + 1) * kRows;
    if (end > r.reduced.n) end = r.reduced.n;
    for (int64_t i = chunk * kRows + line; i < end; i += kLines) {
      int64_t offset[1];
      Offsets(r.reduced, i, offset);
      acc = Op::Add(acc, r.x.At(base[0] + offset[0]));
    }
  }
  parts[line][lane] = acc;
  __syncthreads();
  if (line > 0 || column >= r.width) return;
  for (int i = 1; i < kLines; ++i) acc = Op::Merge(acc, parts[i][lane]);
  r.partial[result * r.chunks + chunk] = acc;
}

template <typename Op, typename Acc, typename Y>
__global__ void __launch_bounds__(kThreads)
    MergeKernel(const Acc* partial, int64_t chunks, int64_t results, int64_t n,
                End end, Out<Y> y) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= results) return;
  Acc acc = partial[i * chunks];
  for (int64_t c = 1; c < chunks; ++c) {
    acc = Op::Merge(acc, partial[i * chunks + c]);
  }
  AmaxPart unused;
  if constexpr (std::is_same_v<Y, float>) {
    float v = acc;
    if (end == End::kMean) v /= static_cast<float>(n);
    if (end == End::kRoot) v = sqrtf(v);
    if (end == End::kLog) v = logf(v);
    y.Put(i, v, unused);
  } else {
    y.Put(i, static_cast<Y>(acc), unused);
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

template <typename Op, typename T, typename Acc>
void Reduce(KernelContext& ctx, End end) {
  const Tensor& x = Operand(ctx, 0);
  ReductionLayout l = ReductionOf(ctx, x);
  Out<T> y = OutTo<T>(ctx, 0, l.shape);
  if (l.kept.n == 0) return;
  Queue& queue = QueueOf(ctx);
  int64_t chunk = l.inner_reduced ? kChunk : kRows;
  int64_t chunks = std::max<int64_t>(DivideUp(l.reduced.n, chunk), 1);
  auto* partial = static_cast<Acc*>(
      queue.Scratch(static_cast<size_t>(l.kept.n * chunks) * sizeof(Acc)));
  Reduction<T, Acc> r = {InOf<T>(ctx, 0),        WalkOf(ctx, l.kept),
                         WalkOf(ctx, l.reduced), chunks,
                         l.kept.sizes.back(),    partial};
  if (l.inner_reduced) {
    Launch(RowsKernel<Op, T, Acc>, static_cast<unsigned>(l.kept.n * chunks),
           kThreads, 0, queue.stream(), r);
  } else {
    int64_t tasks = l.kept.n / r.width * DivideUp(r.width, kLanes) * chunks;
    Launch(ColumnsKernel<Op, T, Acc>, static_cast<unsigned>(tasks),
           kLanes * kLines, 0, queue.stream(), r);
  }
  Launch(MergeKernel<Op, Acc, T>, BlocksFor(l.kept.n), kThreads, 0,
         queue.stream(), static_cast<const Acc*>(partial), chunks, l.kept.n,
         l.reduced.n, end, y);
}

template <typename Op>
void Sums(KernelContext& ctx) {
  DType dtype = Operand(ctx, 0).dtype();
  if (dtype == DType::kInt64) {
    return Reduce<Op, int64_t, uint64_t>(ctx, End::kAsItIs);
  }
  if (dtype == DType::kInt32) {
    return Reduce<Op, int32_t, uint32_t>(ctx, End::kAsItIs);
  }
  KeptAs(ctx, dtype);
  Reduce<Op, float, float>(ctx, End::kAsItIs);
}

// Several nodes. Those that do not sum all elements run alone.
template <typename Op>
void SumsOfMany(std::span<KernelContext> nodes) {
  static_assert(Many<WholeSum>::kMost <= kThreads);
  std::vector<WholeSum> sums;
  for (KernelContext& ctx : nodes) {
    const Tensor& x = Operand(ctx, 0);
    ReductionLayout l = ReductionOf(ctx, x);
    if (x.dtype() == DType::kInt64 || l.kept.n != 1 || !l.inner_reduced) {
      Sums<Op>(ctx);
    } else {
      sums.push_back({FloatsOf(ctx, 0), x.size(), FloatsTo(ctx, 0, l.shape)});
    }
  }
  Queue& queue = QueueOf(nodes[0]);
  auto chunks = [](const WholeSum& w) {
    return static_cast<unsigned>(std::max<int64_t>(DivideUp(w.n, kChunk), 1));
  };
  ForMany(sums, chunks, [&](const Many<WholeSum>& many) {
    auto* partial =
        static_cast<float*>(queue.Scratch(many.blocks * sizeof(float)));
    Launch(WholeSumsKernel<Op>, many.blocks, kThreads, 0, queue.stream(), many,
           partial);
    Launch(MergeWholeKernel<Op>, 1, kThreads, 0, queue.stream(), many,
           static_cast<const float*>(partial));
  });
}

template <typename Op, End kEnd>
void FloatSums(KernelContext& ctx) {
  KeptAs(ctx, Operand(ctx, 0).dtype());
  Reduce<Op, float, float>(ctx, kEnd);
}

void LogSumExp(KernelContext& ctx) {
  KeptAs(ctx, Operand(ctx, 0).dtype());
  Reduce<LogSumExpOp, float, Exponentials>(ctx, End::kAsItIs);
}

template <typename Op>
void Extremes(KernelContext& ctx) {
  DType dtype = Operand(ctx, 0).dtype();
  if (dtype == DType::kBool) {  // bytes of 0 or 1
    return Reduce<Op, bool, bool>(ctx, End::kAsItIs);
  }
  ForNumeric(dtype, ctx.Where(),
             [&]<typename T>() { Reduce<Op, T, T>(ctx, End::kAsItIs); });
}

}  // namespace

void RegisterReduce(KernelRegistry& r) {
  const KernelTraits kept = {.host_inputs = {1}, .narrow_in = {0}};
  r.Add("ReduceSum", Sums<SumOp>, kept);
  KernelTraits squares = kept;
  squares.many = SumsOfMany<SquareOp>;
  r.Add("ReduceSumSquare", Sums<SquareOp>, squares);
  r.Add("ReduceL1", Sums<AbsOp>, kept);
  r.Add("ReduceL2", FloatSums<SquareOp, End::kRoot>, kept);
  r.Add("ReduceLogSum", FloatSums<SumOp, End::kLog>, kept);
  r.Add("ReduceMean", FloatSums<SumOp, End::kMean>, kept);
  r.Add("ReduceProd", Sums<ProductOp>, kept);
  r.Add("ReduceLogSumExp", LogSumExp, kept);
  r.Add("ReduceMax", Extremes<LargestOp>, {.host_inputs = {1}});
  r.Add("ReduceMin", Extremes<SmallestOp>, {.host_inputs = {1}});
}

}  // namespace onnx_fp8::cuda
