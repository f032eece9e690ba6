// SPDX-License-Identifier: Apache-2.0
//
// Gradients of the norms in norm.cu. With h = (x - mean) inverse and
// dh = dy scale, and without mean(dh) and dbias for RMSNorm:
//   dx = inverse (dh - mean(dh) - h mean(dh h)),  dscale += dy h,  dbias += dy
// Each block adds up the columns of its rows, and a second kernel adds the
// blocks' sums in a fixed order. Traffic: each operand is read once, dx is
// written once; at most 528 partial sums per column are written and read. If dx
// is quantized and the transpose is wanted, its codes are read once more.
// Rows above 8192 elements don't fit in registers: dy and x are read three
// times, x once more for RMSNorm, and all operands once more for scales of
// rows.
#include <algorithm>
#include <string>

#include "providers/cuda/core/column_parts.h"
#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/norm.h"
#include "providers/cuda/ops/norm_slopes.h"
#include "providers/kernel.h"

namespace onnx_fp8::cuda {
namespace {

// ---- rows that do not fit in registers: a kernel for the sums of columns, and
// one for dx

// RMSNorm's 1 / sqrt(mean(x²) + epsilon) of each row.
__global__ void __launch_bounds__(kLongStep, 1)
    InverseKernel(NormGrad p, float* inverses) {
  using Threads = RowThreads<kLongWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  for (int64_t r = threads.first(); r < p.sizes.rows; r += threads.step()) {
    const Row row = RowByColumns(r, p.sizes.n);
    float square = 0;
    for (int64_t i = 0; i < row.size(); i += kLongStep) {
      float x[kPerThread];
      LoadVector(p.x, row.From(i), threads.thread(), 0, x);
      for (float v : x) square = fmaf(v, v, square);
    }
    Slopes s = SlopesFrom<false>(p, {}, threads.Sum(square), 0);
    if (threads.thread() == 0) inverses[r] = s.inverse;
  }
}

// A block of this many lines adds up a tile of columns.
constexpr int kSumLines = 8;
constexpr int kTile = 32 * kPerThread;

// Block (x, y) adds up rows 8 y … 8 y + 7, and every 8 parts-th row after them.
// It comes before dx is written, which may lie where dy or x does.
template <bool kCentered>
__global__ void __launch_bounds__(32 * kSumLines) ColumnSumsKernel(NormGrad p) {
  __shared__ float sums[2][kSumLines][kTile];
  int lane = threadIdx.x % 32, line = threadIdx.x / 32;
  int64_t vector = static_cast<int64_t>(blockIdx.x) * 32;
  float dscale[kPerThread] = {}, dbias[kPerThread] = {};
  for (int64_t r = static_cast<int64_t>(blockIdx.y) * kSumLines + line;
       r < p.sizes.rows; r += p.parts * kSumLines) {
    const RowPart row = RowByColumns(r, p.sizes.n).From(vector);
    Slopes s = {0, Load(p.inverses, r), 0, 0};
    if constexpr (kCentered) s.mean = Load(p.means, r);
    float dy[kPerThread], x[kPerThread];
    LoadVector(p.dy, row, lane, 0, dy);
    LoadVector(p.x, row, lane, 0, x);
    for (int k = 0; k < kPerThread; ++k) {
      dscale[k] = fmaf(dy[k], Normal(s, x[k]), dscale[k]);
      dbias[k] += dy[k];
    }
  }
  for (int k = 0; k < kPerThread; ++k) {
    sums[0][line][lane * kPerThread + k] = dscale[k];
    sums[1][line][lane * kPerThread + k] = dbias[k];
  }
  __syncthreads();
  int which = threadIdx.x / kTile, own = threadIdx.x % kTile;
  int64_t column = static_cast<int64_t>(blockIdx.x) * kTile + own;
  if (column >= p.sizes.n || (which == 1 && !kCentered)) return;
  float sum = 0;
  for (int i = 0; i < kSumLines; ++i) sum += sums[which][i][own];
  p.partial[(which * p.parts + blockIdx.y) * p.sizes.n + column] = sum;
}
static_assert(32 * kSumLines == 2 * kTile);

// dh and x of a row's vector number `first` + i.
__device__ void LoadProducts(const NormGrad& p, const Row& row, int64_t first,
                             int i, float (&dh)[kPerThread],
                             float (&x)[kPerThread]) {
  float dy[kPerThread];
  LoadVector(p.dy, row.From(first), i, 0, dy);
  LoadVector(p.x, row.From(first), i, 0, x);
  Scale(p, RowByColumns(0, p.sizes.n).From(first), i, dy, dh);
}

// x = dx of a row's vector number `first` + i.
template <bool kAdd>
__device__ void ComputeGradient(const NormGrad& p, const Row& row,
                                int64_t first, int i, const Slopes& s,
                                float (&x)[kPerThread]) {
  float dh[kPerThread], more[kPerThread] = {};
  LoadProducts(p, row, first, i, dh, x);
  if (kAdd) LoadVector(p.more, row.From(first), i, 0, more);
  for (int k = 0; k < kPerThread; ++k) {
    x[k] = Gradient(s, dh[k], Normal(s, x[k])) + more[k];
  }
}

// What this thread sees of the row's dx.
template <bool kAdd>
__device__ AmaxPart AmaxOfLongRow(const NormGrad& p, const Row& row, int thread,
                                  const Slopes& s) {
  AmaxPart seen;
  for (int64_t i = 0; i < row.size(); i += kLongStep) {
    const RowPart part = row.From(i);
    float x[kPerThread];
    ComputeGradient<kAdd>(p, row, i, thread, s, x);
    for (int k = 0; k < kPerThread; ++k) {
      if (part.Has(thread, k)) seen.Add(Rounded(p.dx.rounded, x[k]));
    }
  }
  return seen;
}

template <bool kAdd>
__device__ void WriteLongRow(const NormGrad& p, const ResultWriter& dx,
                             const Row& row, int thread, const Slopes& s,
                             AmaxPart& seen) {
  for (int64_t i = 0; i * kPerThread < p.sizes.to_n; i += kLongStep) {
    float x[kPerThread];
    ComputeGradient<kAdd>(p, row, i, thread, s, x);
    StoreVector(dx, row.From(i), thread, x, seen);
  }
}

// dx alone.
template <bool kCentered, bool kAdd>
__global__ void __launch_bounds__(kLongStep, 1) LongNormGradKernel(NormGrad p) {
  if (IsDone(p.dx)) return;
  ResultWriter dx(p.dx, MayWrite(p.dx));
  using Threads = RowThreads<kLongWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  int thread = threads.thread();
  AmaxPart seen;
  for (int64_t r = threads.first(); r < p.sizes.to_rows; r += threads.step()) {
    bool exists = r < p.sizes.rows;
    dx.SetRow(r, p.sizes.n, p.sizes.to_n, exists);
    if (!exists) {
      WriteLongRow<kAdd>(p, dx, RowOfZeros(r, p.sizes.n), thread, {}, seen);
      continue;
    }
    const Row row = RowByColumns(r, p.sizes.n);
    Slopes s = KnownSlopes<kCentered>(p, r);
    float first = 0, second = 0;
    for (int64_t i = 0; i < row.size(); i += kLongStep) {
      float dh[kPerThread], x[kPerThread];
      LoadProducts(p, row, i, thread, dh, x);
      for (int k = 0; k < kPerThread; ++k) {
        AddElement<kCentered>(s, dh[k], x[k], first, second);
      }
    }
    threads.Sum(first, second);
    s = SlopesFrom<kCentered>(p, s, first, second);
    if (p.dx.row_scales) {
      AmaxPart of_row = AmaxOfLongRow<kAdd>(p, row, thread, s);
      dx.factor = FactorFrom(threads, p.dx, r, of_row);
    }
    WriteLongRow<kAdd>(p, dx, row, thread, s, seen);
  }
  seen.AddOfBlock(dx.Amax());
}

// ---- rows in registers

// Adds up the block's rows, and leaves the sum in the first of them. `shared`
// has room for all.
template <int kRows, int kVectors>
__device__ void AddLines(float (&x)[kVectors][kPerThread], float* shared) {
  constexpr int kLine = 32 * kVectors * kPerThread;
  int line = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
  for (int v = 0; v < kVectors; ++v) {
    for (int k = 0; k < kPerThread; ++k) {
      shared[line * kLine + (v * kPerThread + k) * 32 + lane] = x[v][k];
    }
  }
  __syncthreads();
  if (line > 0) return;
  for (int v = 0; v < kVectors; ++v) {
    for (int k = 0; k < kPerThread; ++k) {
      float sum = 0;
      for (int other = 0; other < kRows; ++other) {
        sum += shared[other * kLine + (v * kPerThread + k) * 32 + lane];
      }
      x[v][k] = sum;
    }
  }
}

// The block's sums of columns become partial sum number `part`.
template <int kWarps, int kVectors>
__device__ void StorePartial(const NormGrad& p, int64_t part,
                             float (&x)[kVectors][kPerThread]) {
  using Threads = RowThreads<kWarps>;
  if constexpr (Threads::kRows > 1) {
    __shared__ float lines[Threads::kRows * 32 * kVectors * kPerThread];
    AddLines<Threads::kRows>(x, lines);
    if (threadIdx.x >= Threads::kThreadsOfRow) return;
  }
  AmaxPart unused;
  StoreVectors<Threads::kThreadsOfRow>(FloatsOut{p.partial, Storage::kFloat},
                                       RowByColumns(part, p.sizes.n).From(0),
                                       threadIdx.x % Threads::kThreadsOfRow, x,
                                       unused);
}

template <bool kCentered, int kWarps, int kVectors>
__device__ Slopes SlopesOfRow(const NormGrad& p, RowThreads<kWarps>& threads,
                              int64_t r,
                              const float (&dy)[kVectors][kPerThread],
                              const float (&x)[kVectors][kPerThread]) {
  const RowPart columns = RowByColumns(0, p.sizes.n).From(0);
  Slopes s = KnownSlopes<kCentered>(p, r);
  float first = 0, second = 0;
  for (int v = 0; v < kVectors; ++v) {
    float dh[kPerThread];
    Scale(p, columns, threads.thread() + v * threads.kThreadsOfRow, dy[v], dh);
    for (int k = 0; k < kPerThread; ++k) {
      AddElement<kCentered>(s, dh[k], x[v][k], first, second);
    }
  }
  threads.Sum(first, second);
  return SlopesFrom<kCentered>(p, s, first, second);
}

// The gradient of row r, which adds to dscale and dbias.
template <int kWarps, int kVectors>
__device__ void GradientOfRow(const NormGrad& p, RowThreads<kWarps>& threads,
                              int64_t r, ResultWriter& dx,
                              float (&dscale)[kVectors][kPerThread],
                              float (&dbias)[kVectors][kPerThread],
                              AmaxPart& seen) {
  constexpr int kStep = RowThreads<kWarps>::kThreadsOfRow;
  int thread = threads.thread();
  const RowPart columns = RowByColumns(0, p.sizes.n).From(0);
  const RowPart row = RowByColumns(r, p.sizes.n).From(0);
  float dy[kVectors][kPerThread], x[kVectors][kPerThread];
  LoadVectors<kStep>(p.dy, row, thread, 0, dy);
  LoadVectors<kStep>(p.x, row, thread, 0, x);
  Slopes s = p.centered ? SlopesOfRow<true>(p, threads, r, dy, x)
                        : SlopesOfRow<false>(p, threads, r, dy, x);
  for (int v = 0; v < kVectors; ++v) {
    float dh[kPerThread];
    Scale(p, columns, thread + v * kStep, dy[v], dh);
    for (int k = 0; k < kPerThread; ++k) {
      float h = Normal(s, x[v][k]);
      dscale[v][k] = fmaf(dy[v][k], h, dscale[v][k]);
      dbias[v][k] += dy[v][k];
      x[v][k] = Gradient(s, dh[k], h);
    }
  }
  if (p.more.data) {
    LoadVectors<kStep>(p.more, row, thread, 0, dy);
    for (int v = 0; v < kVectors; ++v) {
      for (int k = 0; k < kPerThread; ++k) x[v][k] += dy[v][k];
    }
  }
  if (p.dx.row_scales) dx.factor = FactorOfRow(threads, p.dx, row, r, x);
  StoreVectors<kStep>(dx, row, thread, x, seen);
}

// ---- whole rows in registers: the usual case

// dh = dy scale for vector i of a whole row.
__device__ void ScaleWhole(const NormGrad& p, const WholeRow& row, int i,
                           const float (&dy)[kPerThread],
                           float (&dh)[kPerThread]) {
  for (float& d : dh) d = 0;
  if (i < row.vectors) {
    Load4({p.scale.data, Storage::kFloat}, i * kPerThread, dh);
  }
  for (int k = 0; k < kPerThread; ++k) dh[k] *= dy[k];
}

// NormGradKernel's bits and order of rows, but fewer instructions: codes have
// no zeros, and the compiler may know how all is kept. The next row is loaded
// before this one is computed.
template <Kinds kKinds, bool kCentered, bool kAdd, int kWarps, int kVectors>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock, 1)
    WholeNormGradKernel(NormGrad p) {
  if (IsDone(p.dx)) return;
  constexpr bool kPacked = kKinds == Kinds::kBFloat16;
  const Storage of_dx = OfStream<kKinds>(p.dx.y).storage;
  const FloatsIn from_dy = OfBranch<kKinds>(p.dy);
  const FloatsIn from_x = OfStream<kKinds>(p.x);
  const FloatsIn from_more = OfStream<kKinds>(p.more);
  ResultWriter dx(p.dx, MayWrite(p.dx));
  const VectorWriter writer(dx, of_dx);
  using Threads = RowThreads<kWarps>;
  constexpr int kStep = Threads::kThreadsOfRow;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  int thread = threads.thread();
  int64_t n = p.sizes.n;
  const WholeRow row = {static_cast<int>(n / kPerThread)};
  float dscale[kVectors][kPerThread] = {}, dbias[kVectors][kPerThread] = {};
  Vector of_dy[kVectors], of_x[kVectors], of_more[kVectors];
  Slopes known = {};
  auto load = [&](int64_t r) {
    if (r >= p.sizes.rows) return;
    LoadRaw<kStep>(from_dy, row, r * n, thread, of_dy);
    LoadRaw<kStep>(from_x, row, r * n, thread, of_x);
    if (kAdd) LoadRaw<kStep>(from_more, row, r * n, thread, of_more);
    known = KnownSlopes<kCentered>(p, r);
  };
  AmaxPart seen;
  load(threads.first());
  for (int64_t r = threads.first(); r < p.sizes.rows; r += threads.step()) {
    RowFragment<kKinds != Kinds::kAny, kVectors> all_dy;
    RowFragment<kPacked, kVectors> all_x;
    Vector raw_more[kVectors];
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      all_dy.Set(from_dy.storage, v, of_dy[v]);
      all_x.Set(from_x.storage, v, of_x[v]);
      if (kAdd) raw_more[v] = of_more[v];
    }
    Slopes s = known;
    load(r + threads.step());
    float first = 0, second = 0;
    float dy[kPerThread], x[kPerThread], dh[kPerThread];
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      all_dy.Get(v, dy);
      all_x.Get(v, x);
      ScaleWhole(p, row, thread + v * kStep, dy, dh);
      for (int k = 0; k < kPerThread; ++k) {
        AddElement<kCentered>(s, dh[k], x[k], first, second);
      }
    }
    threads.Sum(first, second);
    s = SlopesFrom<kCentered>(p, s, first, second);
    float all_dx[kVectors][kPerThread];
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      float more[kPerThread] = {};
      all_dy.Get(v, dy);
      all_x.Get(v, x);
      if (kAdd) ToFloats(from_more.storage, raw_more[v], more);
      ScaleWhole(p, row, thread + v * kStep, dy, dh);
      for (int k = 0; k < kPerThread; ++k) {
        float h = Normal(s, x[k]);
        dscale[v][k] = fmaf(dy[k], h, dscale[v][k]);
        if (kCentered) dbias[v][k] += dy[k];
        all_dx[v][k] = Gradient(s, dh[k], h);
        if (kAdd) all_dx[v][k] += more[k];
      }
    }
    if (p.dx.row_scales) {
      dx.factor = FactorOfRow(threads, p.dx, row, r, all_dx);
    }
    ONNX_FP8_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      int i = thread + v * kStep;
      if (i >= row.vectors) continue;
      writer.Store(r * n + i * kPerThread, all_dx[v], seen);
    }
  }
  seen.AddOfBlock(dx.Amax());
  StorePartial<kWarps>(p, blockIdx.x, dscale);
  if constexpr (kCentered) {
    StorePartial<kWarps>(p, p.parts + blockIdx.x, dbias);
  }
}

// ---- rows in registers, whatever they are

// One kernel serves all norms: its code is long.
template <int kWarps, int kVectors>
__global__ void __launch_bounds__(RowThreads<kWarps>::kBlock, 1)
    NormGradKernel(NormGrad p) {
  if (IsDone(p.dx)) return;
  ResultWriter dx(p.dx, MayWrite(p.dx));
  using Threads = RowThreads<kWarps>;
  __shared__ float shared[Threads::kShared];
  Threads threads(shared);
  float dscale[kVectors][kPerThread] = {}, dbias[kVectors][kPerThread] = {};
  AmaxPart seen;
  for (int64_t r = threads.first(); r < p.sizes.to_rows; r += threads.step()) {
    bool exists = r < p.sizes.rows;
    dx.SetRow(r, p.sizes.n, p.sizes.to_n, exists);
    if (!exists) {
      float none[kVectors][kPerThread] = {};
      StoreVectors<Threads::kThreadsOfRow>(dx, RowOfZeros(r, p.sizes.n).From(0),
                                           threads.thread(), none, seen);
      continue;
    }
    GradientOfRow(p, threads, r, dx, dscale, dbias, seen);
  }
  seen.AddOfBlock(dx.Amax());
  StorePartial<kWarps>(p, blockIdx.x, dscale);
  if (p.centered) StorePartial<kWarps>(p, p.parts + blockIdx.x, dbias);
}

// ---- the ops

// Enough warps for the largest GPU; blocks with few rows would have too many
// partial sums.
constexpr int64_t kMostWarps = 2112, kLeastRows = 4;

struct GradResults {
  FloatsOut dscale, dbias;
};

// Calls f<kWarps, kVectors>() for rows of n elements: kWarps warps hold a row,
// kVectors vectors in each thread. False: rows don't fit in registers.
template <typename F>
bool InRegisters(int64_t n, F f) {
  auto fits = [&]<int kWarps, int kVectors>() {
    if (n > kWarps * kVectors * 32 * kPerThread) return false;
    f.template operator()<kWarps, kVectors>();
    return true;
  };
  return fits.template operator()<1, 1>() || fits.template operator()<1, 2>() ||
         fits.template operator()<1, 4>() || fits.template operator()<4, 2>() ||
         fits.template operator()<8, 2>() ||
         fits.template operator()<16, 2>() || fits.template operator()<16, 4>();
}

// The kernel's workspace: partial sums of dscale and dbias, and behind them a
// number of each row that RMSNorm does not hold in registers.
struct Parts {
  int64_t count;  // of each column
  int64_t sums, inverses;

  size_t bytes() const {
    return static_cast<size_t>(sums + inverses) * sizeof(float);
  }
};

template <bool kCentered>
Parts PartsOf(int64_t rows, int64_t n) {
  Parts parts = {};
  bool held = InRegisters(n, [&]<int kWarps, int kVectors>() {
    using Threads = RowThreads<kWarps>;
    constexpr int64_t kMost = kMostWarps / (Threads::kBlock / 32);
    constexpr int64_t kRowsOfBlock = kLeastRows * Threads::kRows;
    parts.count = std::min(kMost, DivideUp(rows, kRowsOfBlock));
  });
  if (!held) {
    parts.count = std::min<int64_t>(DivideUp(rows, 64), 512);
    if (!kCentered) parts.inverses = rows;
  }
  parts.sums = RoundUp((kCentered ? 2 : 1) * parts.count * n, 64);
  return parts;
}

template <bool kCentered, bool kAdd>
struct StartNormGrad {
  KernelContext& ctx;
  NormGrad& p;
  const Shape& shape;  // of dx

  template <int kWarps, int kVectors>
  void OfHeldRows() const {
    using Threads = RowThreads<kWarps>;
    auto* kernel = NormGradKernel<kWarps, kVectors>;
    if (IsWhole(p.sizes)) {
      Kinds kinds = KindsOf({p.x, p.more, AsOperand(p.dx.y)}, {p.dy});
      if (kinds == Kinds::kBFloat16) {
        kernel = WholeNormGradKernel<Kinds::kBFloat16, kCentered, kAdd, kWarps,
                                     kVectors>;
      } else if constexpr (kVectors <= 2) {  // else registers spill
        kernel = kinds == Kinds::kFloatStream
                     ? WholeNormGradKernel<Kinds::kFloatStream, kCentered, kAdd,
                                           kWarps, kVectors>
                     : WholeNormGradKernel<Kinds::kAny, kCentered, kAdd, kWarps,
                                           kVectors>;
      }
    }
    WriteResult(ctx, shape, p.dx, [&] {
      if (p.sizes.rows == 0) return;
      Launch(kernel, static_cast<unsigned>(p.parts), Threads::kBlock, 0,
             QueueOf(ctx).stream(), p);
    });
  }

  void OfLongRows(float* inverses) const {
    if (p.sizes.rows > 0) AddColumns(inverses);
    WriteResult(ctx, shape, p.dx, [&] {
      if (!p.dx.y.data && !p.dx.q) return;
      LaunchRows<kLongWarps>(ctx, LongNormGradKernel<kCentered, kAdd>,
                             p.sizes.to_rows, p);
    });
  }

  void AddColumns(float* inverses) const {
    cudaStream_t stream = QueueOf(ctx).stream();
    if (!kCentered) {
      auto blocks =
          static_cast<unsigned>(std::min<int64_t>(p.sizes.rows, kMostBlocks));
      Launch(InverseKernel, blocks, kLongStep, 0, stream, p, inverses);
      p.inverses = {inverses, Storage::kFloat};
    }
    dim3 grid(static_cast<unsigned>(DivideUp(p.sizes.n, kTile)),
              static_cast<unsigned>(p.parts));
    Launch(ColumnSumsKernel<kCentered>, grid, 32 * kSumLines, 0, stream, p);
  }

  void operator()() const {
    if (p.sizes.n == 0) return WriteResult(ctx, shape, p.dx, [] {});
    const Parts parts = PartsOf<kCentered>(p.sizes.rows, p.sizes.n);
    p.partial = static_cast<float*>(ctx.Workspace(parts.bytes()));
    p.parts = parts.count;
    bool held = InRegisters(p.sizes.n, [&]<int kWarps, int kVectors>() {
      OfHeldRows<kWarps, kVectors>();
    });
    if (!held) OfLongRows(p.partial + parts.sums);
  }
};

// Operand i. Errors: it is not a number for each row.
FloatsIn Statistic(const KernelContext& ctx, size_t i, const NormRows& rows) {
  const Tensor& t = Operand(ctx, i);
  Check(t.shape() == rows.statistics, "[", ctx.Where(), "] expected input ", i,
        " of shape ", ToString(rows.statistics), ", got ", ToString(t.shape()));
  return FloatsOf(ctx, i);
}

// With kAdd, operand 0 is `more`, and the gradient's operands come after it.
template <bool kCentered, bool kAdd>
void NormGradient(KernelContext& ctx) {
  constexpr size_t first = kAdd;
  const Tensor& x = Operand(ctx, first + 1);
  NormGrad p = {};
  p.centered = kCentered;
  p.x = FloatsOf(ctx, first + 1);
  NormRows rows(ctx, x);
  CheckOperand(ctx, 0, DType::kFloat, x.shape());
  CheckOperand(ctx, first, DType::kFloat, x.shape());
  CheckOperand(ctx, first + 2, DType::kFloat, rows.tail);
  if (kAdd) p.more = FloatsOf(ctx, 0);
  p.dy = FloatsOf(ctx, first);
  p.scale = FloatsOf(ctx, first + 2);
  if (kCentered) {
    p.means = Statistic(ctx, first + 3, rows);
    p.inverses = Statistic(ctx, first + 4, rows);
  }
  p.dx = ResultTo(ctx, 0, x.shape());
  p.sizes = SizesOf(ctx, rows, p.dx);
  p.epsilon = ctx.Float("epsilon", 1e-5f);
  GradResults to = {FloatsTo(ctx, 1, rows.tail), {}};
  if (kCentered) to.dbias = FloatsTo(ctx, 2, rows.tail);
  const Shape shape = x.shape();
  StartNormGrad<kCentered, kAdd>{ctx, p, shape}();
  AddColumnParts(ctx, {p.partial, to.dscale, to.dbias, p.parts, p.sizes.n});
}

template <bool kCentered, bool kAdd>
size_t NormGradWorkspace(KernelContext& ctx) {
  NormRows rows(ctx, Operand(ctx, kAdd + 1));
  return PartsOf<kCentered>(rows.count, rows.n).bytes();
}

// dx may take the place of dy, x and `more`.
template <bool kCentered, bool kAdd>
void Register(KernelRegistry& r, const std::string& op) {
  constexpr Kernel kernel = NormGradient<kCentered, kAdd>;
  KernelTraits traits{.measures = {0},
                      .narrow_out = {0},
                      .workspace = NormGradWorkspace<kCentered, kAdd>};
  for (size_t i = 0; i < (kAdd ? 3 : 2); ++i) {
    traits.in_place.emplace_back(static_cast<int>(i), 0);
    traits.narrow_in.push_back(i);
  }
  r.Add(op, kernel, traits, kDomain);
  traits.measures.clear();  // the quantizer has the amax
  traits.own_amaxes = 1;
  for (const char* form : {"Quantize", "QuantizePadded", "QuantizeRows"}) {
    r.Add(op + form, kernel, traits, kDomain);
  }
}

}  // namespace

void RegisterNormGrad(KernelRegistry& r) {
  Register<true, true>(r, "AddLayerNormGrad");
  Register<false, true>(r, "AddRMSNormGrad");
  Register<true, false>(r, "LayerNormGrad");
  Register<false, false>(r, "RMSNormGrad");
}

}  // namespace onnx_fp8::cuda
