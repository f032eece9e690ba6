// SPDX-License-Identifier: Apache-2.0
//
// Normalization over the last axes, also of a sum. Statistics are computed in
// float, in two passes over registers: the variance is taken from differences
// to the mean, whose own rounding error the second pass finds. Traffic: each
// operand is read once, each result is written once; scale and bias come from
// a cache, and are read twice if rows have scales of their own. A scale or bias
// that differs from row to row is an operand as large as x. Rows above
// 16384 elements don't fit in registers: they are read three times, and once
// more for such scales. If y is quantized and the transpose is wanted, a second
// kernel reads the codes once more.
#include <algorithm>
#include <string>
#include <utility>

#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/norm.h"
#include "providers/cuda/ops/strided.h"
#include "providers/kernel.h"
#include "providers/ops/broadcast.h"

namespace onnx_fp8::cuda {
namespace {

// A scale or bias: one number per element of a row, or of x.
struct Weights {
  FloatsIn data;  // null: omitted
  bool of_x = false;

  // The weights of row r.
  __device__ Row Of(int64_t r, int64_t n) const {
    return RowByColumns(of_x ? r : 0, n);
  }
};

struct Norm {
  FloatsIn a, b;  // b: only if a sum is normalized
  Weights scale, bias;
  FloatsOut sum;              // a + b
  FloatsOut means, inverses;  // one number per row
  Result y;
  NormSizes sizes;
  float epsilon;
  bool centered;  // not for RMSNorm
};

// A row's normal form is (x - mean - rest) inverse.
struct Center {
  float mean, rest, inverse;

  // With scale and bias.
  __device__ float Normalized(float x, float scale, float bias) const {
    float normal = fmaf(x - mean, inverse, -rest * inverse);
    return fmaf(normal, scale, bias);
  }
};

// `rest` is the mean of x - mean, and `square` is the mean of (x - mean)². The
// inverse has an error of 2 ulp.
__device__ Center CenterOf(float mean, float rest, float square,
                           float epsilon) {
  float variance = square - rest * rest;
  if (variance < 0) variance = 0;  // by rounding
  return {mean, rest, rsqrtf(variance + epsilon)};
}

// ---- rows in registers

// x += b from vector kFirst on, and stores the sum, four vectors at a time. The
// norm takes the sum before it is rounded. The sum is not stored while y is
// only measured: it may lie where an operand does.
template <int kStep, int kFirst = 0, int kVectors>
__device__ void AddOther(const Norm& p, bool writes, const RowPart& row,
                         int thread, float (&x)[kVectors][kPerThread]) {
  constexpr int kLeft = kVectors - kFirst, kGroup = kLeft < 4 ? kLeft : 4;
  int first = thread + kFirst * kStep;
  float sum[kGroup][kPerThread];
  LoadVectors<kStep>(p.b, row, first, 0, sum);
  for (int v = 0; v < kGroup; ++v) {
    for (int k = 0; k < kPerThread; ++k) {
      x[kFirst + v][k] += sum[v][k];
      sum[v][k] = x[kFirst + v][k];
    }
  }
  AmaxPart unused;
  if (writes) StoreVectors<kStep>(p.sum, row, first, sum, unused);
  if constexpr (kLeft > kGroup) {
    AddOther<kStep, kFirst + kGroup>(p, writes, row, thread, x);
  }
}

template <typename Threads, typename Vectors>
__device__ Center RmsOfRow(Threads& threads, int64_t n, const Vectors& row,
                           float epsilon) {
  float square = 0;
  ONNX_FP8_UNROLL
  for (int v = 0; v < Vectors::kCount; ++v) {
    float x[kPerThread];
    row.Get(v, x);
    for (float d : x) square = fmaf(d, d, square);
  }
  square = threads.Sum(square);
  return CenterOf(0, 0, square / static_cast<float>(n), epsilon);
}

// `part` knows which elements the row has.
template <typename Threads, typename Part, typename Vectors>
__device__ Center CenterOfRow(Threads& threads, const Part& part, int64_t size,
                              const Vectors& row, float epsilon) {
  auto n = static_cast<float>(size);
  float mean = 0, rest = 0, square = 0, x[kPerThread];
  ONNX_FP8_UNROLL
  for (int v = 0; v < Vectors::kCount; ++v) {
    row.Get(v, x);
    for (float d : x) mean += d;
  }
  mean = threads.Sum(mean) / n;
  ONNX_FP8_UNROLL
  for (int v = 0; v < Vectors::kCount; ++v) {
    int i = threads.thread() + v * threads.kThreadsOfRow;
    row.Get(v, x);
    for (int k = 0; k < kPerThread; ++k) {
      float d = part.Has(i, k) ? x[k] - mean : 0.0f;
      rest += d;
      square = fmaf(d, d, square);
    }
  }
  threads.Sum(rest, square);
  return CenterOf(mean, rest / n, square / n, epsilon);
}

// x = the normal form of vector i of row r, with scale and bias. Vectors are
// counted from number `first` of the row on.
__device__ void Normalize(const Norm& p, int64_t r, int64_t first, int i,
                          const Center& c, float (&x)[kPerThread]) {
  float scale[kPerThread], bias[kPerThread] = {};
  LoadVector({p.scale.data.data, Storage::kFloat},
             p.scale.Of(r, p.sizes.n).From(first), i, 0, scale);
  if (p.bias.data.data) {
    LoadVector({p.bias.data.data, Storage::kFloat},
               p.bias.Of(r, p.sizes.n).From(first), i, 0, bias);
  }
  ONNX_FP8_UNROLL
  for (int k = 0; k < kPerThread; ++k) {
    x[k] = c.Normalized(x[k], scale[k], bias[k]);
  }
}

// The same for a vector of a whole row; all rows have one scale and bias.
__device__ void NormalizeWhole(const Norm& p, int i, const Center& c,
                               float (&x)[kPerThread]) {
  float scale[kPerThread], bias[kPerThread] = {};
  Load4({p.scale.data.data, Storage::kFloat}, i * kPerThread, scale);
  if (p.bias.data.data) {
    Load4({p.bias.data.data, Storage::kFloat}, i * kPerThread, bias);
  }
  ONNX_FP8_UNROLL
  for (int k = 0; k < kPerThread; ++k) {
    x[k] = c.Normalized(x[k], scale[k], bias[k]);
  }
}

__device__ void StoreCenter(const Norm& p, int64_t row, const Center& c) {
  // `rest` is NaN if the mean is infinite.
  float mean = isfinite(c.mean) ? c.mean + c.rest : c.mean;
  if (p.means.data) Store(p.means, row, mean);
  if (p.inverses.data) Store(p.inverses, row, c.inverse);
}

// Row r of a block whose threads are `Threads`.
template <int kVectors, typename Threads>
__device__ void NormOfRow(const Norm& p, Threads& threads, int64_t r,
                          ResultWriter y, AmaxPart& seen) {
  constexpr int kStep = Threads::kThreadsOfRow;
  int64_t n = p.sizes.n;
  int thread = threads.thread();
  bool exists = r < p.sizes.rows;
  const RowPart row = (exists ? RowByColumns(r, n) : RowOfZeros(r, n)).From(0);
  FloatVectors<kVectors> vectors;
  auto& x = vectors.x;
  LoadVectors<kStep>(p.a, row, thread, 0, x);
  if (p.b.data) AddOther<kStep>(p, y.writes, row, thread, x);
  Center c = p.centered ? CenterOfRow(threads, row, row.end, vectors, p.epsilon)
                        : RmsOfRow(threads, n, vectors, p.epsilon);
  ONNX_FP8_UNROLL
  for (int v = 0; v < kVectors; ++v) {
    Normalize(p, exists ? r : 0, 0, thread + v * kStep, c, x[v]);
  }
  if (p.y.row_scales) y.factor = FactorOfRow(threads, p.y, row, r, x);
  StoreVectors<kStep>(y, row, thread, x, seen);
  if (thread == 0 && y.writes && exists) StoreCenter(p, r, c);
}

// A multiprocessor has room for at least 16 warps. One kernel serves all norms:
// its code is long, and the usual rows have a shorter one.
template <int kWarps, int kVectors>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock,
                                  512 / RowThreads<kWarps>::kBlock)
    NormKernel(Norm p) {
  if (IsDone(p.y)) return;
  ResultWriter y(p.y, MayWrite(p.y));
  using Threads = RowThreads<kWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  AmaxPart seen;
  for (int64_t r = threads.first(); r < p.sizes.to_rows; r += threads.step()) {
    y.SetRow(r, p.sizes.n, p.sizes.to_n, r < p.sizes.rows);
    NormOfRow<kVectors>(p, threads, r, y, seen);
  }
  seen.AddOfBlock(y.Amax());
}

// ---- whole rows in registers: the usual case

// The threads of a multiprocessor that have room for their registers.
template <Kinds kKinds, bool kAdd, int kVectors>
inline constexpr int kRoomFor = kVectors <= 2                ? 1024
                                : kKinds != Kinds::kBFloat16 ? 512
                                : kVectors > 4 ? (kAdd ? 512 : 768)
                                : kAdd         ? 768
                                               : 1024;

// The other kernels' bits, but fewer instructions and registers: the codes have
// no zeros, and the compiler may know how all is kept. The next row is loaded
// before this one is stored.
template <Kinds kKinds, bool kAdd, int kWarps, int kVectors>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock,
                                  kRoomFor<kKinds, kAdd, kVectors> /
                                      RowThreads<kWarps>::kBlock)
    WholeNormKernel(Norm p) {
  if (IsDone(p.y)) return;
  ResultWriter y(p.y, MayWrite(p.y));
  using Threads = RowThreads<kWarps>;
  constexpr int kStep = Threads::kThreadsOfRow;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  int thread = threads.thread();
  int64_t n = p.sizes.n;
  const WholeRow row = {static_cast<int>(n / kPerThread)};
  const VectorWriter writer(y, OfBranch<kKinds>(p.y.y).storage);
  const FloatsIn a = OfStream<kKinds>(p.a), b = OfBranch<kKinds>(p.b);
  const FloatsOut to_sum = OfStream<kKinds>(p.sum);
  Vector of_a[kVectors], of_b[kVectors];
  auto load = [&](int64_t r) {
    if (r >= p.sizes.rows) return;
    LoadRaw<kStep>(a, row, r * n, thread, of_a);
    if (kAdd) LoadRaw<kStep>(b, row, r * n, thread, of_b);
  };
  // f(i, v) for each vector i of the row, the thread's number v.
  auto for_vectors = [&](auto f) {
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      int i = thread + v * kStep;
      if (i < row.vectors) f(i, v);
    }
  };
  AmaxPart seen;
  load(threads.first());
  for (int64_t r = threads.first(); r < p.sizes.rows; r += threads.step()) {
    RowFragment<kKinds == Kinds::kBFloat16 && !kAdd, kVectors> x;
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      x.Set(a.storage, v, of_a[v]);
      if constexpr (kAdd) {
        float other[kPerThread];
        ToFloats(b.storage, of_b[v], other);
        for (int k = 0; k < kPerThread; ++k) x.x[v][k] += other[k];
      }
    }
    if (kAdd && to_sum.data && y.writes) {
      for_vectors([&](int i, int v) {
        float sum[kPerThread];
        x.Get(v, sum);
        Store4(to_sum, r * n + i * kPerThread, sum);
      });
    }
    load(r + threads.step());
    Center c = p.centered ? CenterOfRow(threads, row, n, x, p.epsilon)
                          : RmsOfRow(threads, n, x, p.epsilon);
    if (p.y.row_scales) {
      AmaxPart of_row;
      for_vectors([&](int i, int v) {
        float normal[kPerThread];
        x.Get(v, normal);
        NormalizeWhole(p, i, c, normal);
        Round4(p.y.rounded, normal);
        of_row.Add4(normal);
      });
      y.factor = FactorFrom(threads, p.y, r, of_row);
    }
    for_vectors([&](int i, int v) {
      float normal[kPerThread];
      x.Get(v, normal);
      NormalizeWhole(p, i, c, normal);
      writer.Store(r * n + i * kPerThread, normal, seen);
    });
    if (thread == 0 && y.writes) StoreCenter(p, r, c);
  }
  seen.AddOfBlock(y.Amax());
}

// ---- long rows

// x = vector i of the normalized values; 0 outside of the row.
template <bool kAdd>
__device__ void LoadSum(const Norm& p, const RowPart& row, int i,
                        float (&x)[kPerThread]) {
  LoadVector(p.a, row, i, 0, x);
  if constexpr (kAdd) {
    float b[kPerThread];
    LoadVector(p.b, row, i, 0, b);
    for (int k = 0; k < kPerThread; ++k) x[k] += b[k];
  }
}

// This thread's sums of x - mean and of its square.
template <bool kAdd>
__device__ void AddDifferences(const Norm& p, const Row& row, int thread,
                               float mean, float& sum, float& square) {
  for (int64_t i = 0; i < row.size(); i += kLongStep) {
    const RowPart part = row.From(i);
    float x[kPerThread];
    LoadSum<kAdd>(p, part, thread, x);
    for (int k = 0; k < kPerThread; ++k) {
      float d = part.Has(thread, k) ? x[k] - mean : 0.0f;
      sum += d;
      square = fmaf(d, d, square);
    }
  }
}

// What this thread sees of the row's y.
template <bool kAdd>
__device__ AmaxPart AmaxOfLongRow(const Norm& p, int64_t r, const Row& row,
                                  int thread, const Center& c) {
  AmaxPart seen;
  for (int64_t i = 0; i < row.size(); i += kLongStep) {
    const RowPart part = row.From(i);
    float x[kPerThread];
    LoadSum<kAdd>(p, part, thread, x);
    Normalize(p, r, i, thread, c, x);
    for (int k = 0; k < kPerThread; ++k) {
      if (part.Has(thread, k)) seen.Add(Rounded(p.y.rounded, x[k]));
    }
  }
  return seen;
}

// The sum is stored in the last pass: it may lie where an operand does.
template <bool kAdd>
__device__ void WriteLongRow(const Norm& p, const ResultWriter& y, int64_t r,
                             const Row& row, int thread, const Center& c,
                             AmaxPart& seen) {
  for (int64_t i = 0; i * kPerThread < p.sizes.to_n; i += kLongStep) {
    const RowPart part = row.From(i);
    float x[kPerThread];
    LoadSum<kAdd>(p, part, thread, x);
    if (kAdd && p.sum.data && y.writes) {
      float sum[kPerThread];
      for (int k = 0; k < kPerThread; ++k) sum[k] = x[k];
      AmaxPart unused;
      StoreVector(p.sum, part, thread, sum, unused);
    }
    if (!IsRead(y)) continue;
    Normalize(p, r, i, thread, c, x);
    StoreVector(y, part, thread, x, seen);
  }
}

template <bool kAdd, bool kCentered>
__global__ void __launch_bounds__(kLongStep, 1) LongNormKernel(Norm p) {
  if (IsDone(p.y)) return;
  ResultWriter y(p.y, MayWrite(p.y));
  using Threads = RowThreads<kLongWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  int thread = threads.thread();
  auto n = static_cast<float>(p.sizes.n);
  AmaxPart seen;
  for (int64_t r = threads.first(); r < p.sizes.to_rows; r += threads.step()) {
    bool exists = r < p.sizes.rows;
    int64_t own = exists ? r : 0;  // whose scale and bias it has
    const Row row =
        exists ? RowByColumns(r, p.sizes.n) : RowOfZeros(r, p.sizes.n);
    y.SetRow(r, p.sizes.n, p.sizes.to_n, exists);
    float mean = 0, rest = 0, square = 0;
    if constexpr (kCentered) {
      AddDifferences<kAdd>(p, row, thread, 0, mean, square);
      mean = threads.Sum(mean) / n;
      square = 0;
    }
    AddDifferences<kAdd>(p, row, thread, mean, rest, square);
    threads.Sum(rest, square);
    rest = kCentered ? rest / n : 0.0f;
    Center c = CenterOf(mean, rest, square / n, p.epsilon);
    if (p.y.row_scales) {
      AmaxPart of_row = AmaxOfLongRow<kAdd>(p, own, row, thread, c);
      y.factor = FactorFrom(threads, p.y, r, of_row);
    }
    WriteLongRow<kAdd>(p, y, own, row, thread, c, seen);
    if (thread == 0 && y.writes && exists) StoreCenter(p, r, c);
  }
  seen.AddOfBlock(y.Amax());
}

// ---- the ops

template <bool kAdd, bool kCentered>
struct StartNorm {
  const KernelContext& ctx;
  Norm& p;

  void operator()() const {
    int64_t n = p.sizes.n;
    if (n <= 128) return InRegisters<1, 1>();
    if (n <= 256) return InRegisters<1, 2>();
    if (n <= 512) return InRegisters<1, 4>();
    if (n <= 1024) return InRegisters<1, 8>();
    if (n <= 2048) return InRegisters<2, 8>();
    if (n <= 4096) return InRegisters<4, 8>();
    if (n <= 8192) return InRegisters<8, 8>();
    if (n <= 16384) return InRegisters<16, 8>();
    LaunchRows<kLongWarps>(ctx, LongNormKernel<kAdd, kCentered>,
                           p.sizes.to_rows, p);
  }

  // The kernel of whole rows, or `other` if its registers would spill.
  template <int kWarps, int kVectors>
  static auto* WholeKernel(Kinds kinds, void (*other)(Norm)) {
    if (kinds == Kinds::kBFloat16) {
      return WholeNormKernel<Kinds::kBFloat16, kAdd, kWarps, kVectors>;
    }
    if (kinds == Kinds::kFloatStream) {
      return WholeNormKernel<Kinds::kFloatStream, kAdd, kWarps, kVectors>;
    }
    if constexpr (kVectors <= 4) {
      return WholeNormKernel<Kinds::kAny, kAdd, kWarps, kVectors>;
    } else {
      return other;
    }
  }

  // Rows of at most 128 · kWarps · kVectors elements.
  template <int kWarps, int kVectors>
  void InRegisters() const {
    auto* kernel = NormKernel<kWarps, kVectors>;
    if (IsWhole(p.sizes) && !p.scale.of_x && !p.bias.of_x) {
      kernel = WholeKernel<kWarps, kVectors>(
          KindsOf({p.a, AsOperand(p.sum)}, {p.b, AsOperand(p.y.y)}), kernel);
    }
    LaunchRows<kWarps>(ctx, kernel, p.sizes.to_rows, p);
  }
};

// How operand i, a scale or bias, broadcasts to x.
struct WeightSizes {
  Shape from, to;  // `to`: the shape of a row or of x
  bool of_x;

  // Workspace for a copy with all elements; 0 if the operand has them.
  size_t bytes() const {
    int64_t elements = from == to ? 0 : NumElements(to);
    return static_cast<size_t>(RoundUp(4 * elements, 256));
  }
};

WeightSizes WeightSizesOf(const KernelContext& ctx, size_t i,
                          const NormRows& rows) {
  const Shape& all = Operand(ctx, 0).shape();
  if (!ctx.HasIn(i)) return {rows.tail, rows.tail, false};
  Shape from = ctx.In(i).shape();
  Check(BroadcastShapes(from, all, ctx.Where()) == all, "[", ctx.Where(),
        "] expected input ", i, " to broadcast to ", ToString(all), ", got ",
        ToString(from));
  // Where the axes of a row begin; other axes come before.
  auto row = from.end() - static_cast<std::ptrdiff_t>(
                              std::min(from.size(), rows.tail.size()));
  bool of_x = std::any_of(from.begin(), row, [](int64_t n) { return n != 1; });
  if (!of_x) from.erase(from.begin(), row);
  return {from, of_x ? all : rows.tail, of_x};
}

// Operand i; a copy with all its elements lies in the workspace, from byte
// `used` on. Errors: it isn't float.
Weights WeightsIn(KernelContext& ctx, size_t i, const NormRows& rows,
                  size_t& used, size_t bytes) {
  if (!ctx.HasIn(i)) return {};
  const Tensor& t = ctx.In(i);
  Check(t.dtype() == DType::kFloat, "[", ctx.Where(), "] expected input ", i,
        " of dtype ", Name(DType::kFloat), ", got ", Name(t.dtype()));
  WeightSizes z = WeightSizesOf(ctx, i, rows);
  if (z.bytes() == 0) return {{t.raw(), Storage::kFloat}, z.of_x};
  void* to = static_cast<std::byte*>(ctx.Workspace(bytes)) + used;
  used += z.bytes();
  CopyStrided(ctx, z.to, sizeof(float), t.raw(),
              BroadcastStrides(z.from, z.to.size()), to, Strides(z.to));
  return {{to, Storage::kFloat}, z.of_x};
}

template <bool kAdd, bool kCentered>
size_t NormWorkspace(KernelContext& ctx) {
  NormRows rows(ctx, Operand(ctx, 0));
  size_t bytes = 0;
  for (size_t i = kAdd + 1; i <= kAdd + 1 + kCentered; ++i) {
    bytes += WeightSizesOf(ctx, i, rows).bytes();
  }
  return bytes;
}

// Result i of LayerNormalization: one number per row, in the dtype that the
// plan knows or stash_type names.
FloatsOut StatisticsTo(KernelContext& ctx, size_t i, const NormRows& rows) {
  if (!ctx.HasOut(i)) return {};
  DType dtype = ctx.node().out(i)->dtype;
  if (dtype == DType::kUndefined) {
    dtype = static_cast<DType>(ctx.Int("stash_type", 1));
  }
  Check(IsFloat(dtype), "[", ctx.Where(),
        "] expected a float dtype in stash_type, got ", Name(dtype));
  Storage storage = StorageOf(ctx, dtype);
  return {ctx.Out(i, dtype, rows.statistics).raw(), storage};
}

// With kAdd, the sum's second operand comes before the scale, and the sum is
// result 0.
template <bool kAdd, bool kCentered>
void Normalization(KernelContext& ctx) {
  constexpr size_t k = kAdd;
  const Tensor& x = Operand(ctx, 0);
  Norm p = {};
  p.centered = kCentered;
  p.a = FloatsOf(ctx, 0);
  if (kAdd) {
    CheckOperand(ctx, 1, DType::kFloat, x.shape());
    p.b = FloatsOf(ctx, 1);
    // The sum is the same either way: the kernels know a as the stream.
    if (p.a.storage != Storage::kFloat) std::swap(p.a, p.b);
    p.sum = FloatsTo(ctx, 0, x.shape());
  }
  Operand(ctx, k + 1);
  NormRows rows(ctx, x);
  size_t bytes = NormWorkspace<kAdd, kCentered>(ctx), used = 0;
  p.scale = WeightsIn(ctx, k + 1, rows, used, bytes);
  p.y = ResultTo(ctx, k, x.shape());
  if (kCentered) {
    p.bias = WeightsIn(ctx, k + 2, rows, used, bytes);
    p.means = StatisticsTo(ctx, k + 1, rows);
    p.inverses = StatisticsTo(ctx, k + 2, rows);
  }
  p.sizes = SizesOf(ctx, rows, p.y);
  p.epsilon = ctx.Float("epsilon", 1e-5f);
  const Shape shape = x.shape();
  WriteResult(ctx, shape, p.y, StartNorm<kAdd, kCentered>{ctx, p});
}

// Under a name of ours, or as the op of ONNX.
template <bool kAdd, bool kCentered>
void Register(KernelRegistry& r, const std::string& op, bool onnx) {
  constexpr Kernel kernel = Normalization<kAdd, kCentered>;
  KernelTraits traits{.in_place = {{0, 0}},
                      .measures = {kAdd},
                      .narrow_in = {0},
                      .narrow_out = {0},
                      .workspace = NormWorkspace<kAdd, kCentered>};
  if (kAdd) {
    traits.in_place = {{0, 0}, {1, 0}, {0, 1}, {1, 1}};
    traits.narrow_in = traits.narrow_out = {0, 1};
  }
  r.Add(op, kernel, traits, onnx ? "" : kDomain);
  if (op == "RMSNormalization") return;
  traits.measures = {};  // the quantizer has the amax
  traits.own_amaxes = 1;
  for (const char* form : {"Quantize", "QuantizePadded", "QuantizeRows"}) {
    r.Add(op + form, kernel, traits, kDomain);
  }
}

}  // namespace

void RegisterNorm(KernelRegistry& r) {
  Register<false, true>(r, "LayerNormalization", true);
  Register<false, false>(r, "RMSNormalization", true);
  Register<true, true>(r, "AddLayerNorm", false);
  Register<true, false>(r, "AddRMSNorm", false);
  Register<false, false>(r, "RMSNorm", false);
}

}  // namespace onnx_fp8::cuda
