// SPDX-License-Identifier: Apache-2.0
//
// Conv and ConvTranspose. A library computes what it can (convolution/), our
// own kernels the rest, directly from x: where a group has many output
// channels, a block computes 64 of them at 64 positions, as products of tiles;
// long sums with few results are split, and a second kernel adds the parts in
// order. Otherwise a thread computes one result, or a block does if its sum is
// long. Traffic: y is written once, x is read once for 64 output channels, the
// weight once for 64 positions; what windows share comes from caches. A
// ConvTranspose with strides also multiplies the zeros between the elements of
// x.
#include <algorithm>
#include <vector>

#include "providers/cuda/convolution/by_library.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/tiles.h"
#include "providers/cuda/ops/device_window.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"

namespace onnx_fp8::cuda {
namespace {

// One element of a sum: one input channel and one tap.
struct alignas(16) Tap {
  int64_t x;       // elements from the first channel of the group to this one
  int64_t weight;  // elements from the output channel's first weight
  int at[3];       // place of the tap, times the dilation
  int unused;
};

struct Convolution {
  FloatsIn x, weight, bias;  // the bias may have no data
  FloatsOut y;
  int64_t n, group, c, m;  // channels of x and y in one group
  DeviceWindow w;
  int64_t depth;          // elements of a sum, c · taps
  int64_t plane;          // elements of a plane of y
  int64_t size;           // elements of y
  int64_t split, splits;  // elements of a part of a sum, parts
  float* partial;         // [splits] times y, if splits > 1
  const Tap* taps;        // [depth]; null where no kernel reads it
};

// A ConvTranspose goes from the window's `out` to its `in`.
template <bool kTransposed>
__device__ const int (&InputSizes(const Convolution& v))[3] {
  return kTransposed ? v.w.out : v.w.in;
}
template <bool kTransposed>
__device__ const int (&OutputSizes(const Convolution& v))[3] {
  return kTransposed ? v.w.in : v.w.out;
}
template <bool kTransposed>
__device__ int64_t InputPlane(const Convolution& v) {
  return kTransposed ? v.w.out_plane : v.w.in_plane;
}

// An output position, as what taps are added to or subtracted from.
struct ConvPosition {
  int start[3];
};

template <bool kTransposed>
__device__ ConvPosition ConvPositionOf(const Convolution& v, int64_t element) {
  ConvPosition p;
  PlaceIn(OutputSizes<kTransposed>(v), element, p.start);
  for (int a = 0; a < 3; ++a) {
    p.start[a] = kTransposed ? p.start[a] + v.w.pad[a]
                             : p.start[a] * v.w.stride[a] - v.w.pad[a];
  }
  return p;
}

// The index along axis a that a tap reads; -1: there is none.
template <bool kTransposed>
__device__ int IndexAt(const Convolution& v, int a, int start, int tap) {
  int i = kTransposed ? start - tap : start + tap;
  if (i < 0) return -1;
  if (kTransposed && v.w.stride[a] > 1) {
    if (i % v.w.stride[a] != 0) return -1;
    i /= v.w.stride[a];
  }
  return i < InputSizes<kTransposed>(v)[a] ? i : -1;
}

// The element that a tap reads; x is the first one of the group's channels.
template <bool kTransposed>
__device__ float InputAt(const Convolution& v, int64_t x, const ConvPosition& p,
                         const Tap& tap) {
  int64_t at = 0;
  for (int a = 0; a < 3; ++a) {
    int i = IndexAt<kTransposed>(v, a, p.start[a], tap.at[a]);
    if (i < 0) return 0;
    at = at * InputSizes<kTransposed>(v)[a] + i;
  }
  return Load(v.x, x + tap.x + at);
}

// The first weight of an output channel.
template <bool kTransposed>
__device__ int64_t WeightsOf(const Convolution& v, int64_t group, int64_t row) {
  int64_t of_group = v.m * v.depth;
  return group * of_group + row * (kTransposed ? v.w.taps : v.depth);
}

// y[i] = the sum and the channel's bias.
__device__ void StoreSum(const Convolution& v, int64_t i, int64_t channel,
                         float sum) {
  Store(v.y, i, v.bias.data ? sum + Load(v.bias, channel) : sum);
}

template <bool kTransposed>
__global__ void __launch_bounds__(kThreads)
    TapsKernel(Convolution v, Tap* taps) {
  int64_t k = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (k >= v.depth) return;
  int64_t channel = k / v.w.taps, tap = k % v.w.taps;
  Tap t;
  t.x = channel * InputPlane<kTransposed>(v);
  t.weight = kTransposed ? channel * v.m * v.w.taps + tap : k;
  PlaceIn(v.w.kernel, tap, t.at);
  for (int a = 0; a < 3; ++a) t.at[a] *= v.w.dilation[a];
  t.unused = 0;
  taps[k] = t;
}

// ---- many output channels: tiles of channels and positions of all images

struct ConvMemory {
  alignas(16) float weight[kSide][kDepthStride];
  alignas(16) float x[kSide][kDepthStride];
};

// A column of the tile: one position of one image.
struct ConvColumn {
  bool exists;
  int64_t image, element;
};

__device__ ConvColumn ConvColumnAt(const Convolution& v, int64_t column) {
  if (column >= v.n * v.plane) return {false, 0, 0};
  return {true, column / v.plane, column % v.plane};
}

// Weights of kSide output channels for elements k … k+31 of their sums.
template <bool kTransposed>
__device__ void StageWeights(const Convolution& v, int64_t group, int64_t row,
                             int64_t k, float (*to)[kDepthStride]) {
  if constexpr (!kTransposed) {
    TensorRows rows = {v.weight, group * v.m * v.depth, v.depth, v.m, v.depth};
    StageRows(rows, row, k, to);
  } else {
    for (int i = 0; i < kSide * kDepth / kTileThreads; ++i) {
      int element = i * kTileThreads + static_cast<int>(threadIdx.x);
      int line = element / kDepth, at = element % kDepth;
      bool exists = row + line < v.m && k + at < v.depth;
      int64_t first = WeightsOf<true>(v, group, row + line);
      to[line][at] =
          exists ? Load(v.weight, first + v.taps[k + at].weight) : 0.0f;
    }
  }
}

// What kSide columns read for elements k … k+31. A thread has eight elements of
// one column; neighboring threads have neighboring positions.
template <bool kTransposed>
__device__ void StageInputs(const Convolution& v, int64_t x,
                            const ConvColumn& own, const ConvPosition& p,
                            int64_t k, float (*to)[kDepthStride]) {
  constexpr int kShare = kSide * kDepth / kTileThreads;
  int line = static_cast<int>(threadIdx.x) % kSide;
  int first = static_cast<int>(threadIdx.x) / kSide * kShare;
  ONNX_FP8_KEEP_LOOP
  for (int i = first; i < first + kShare; i += 4) {
    float read[4];
    for (int l = 0; l < 4; ++l) {
      bool exists = own.exists && k + i + l < v.depth;
      read[l] =
          exists ? InputAt<kTransposed>(v, x, p, v.taps[k + i + l]) : 0.0f;
    }
    WriteShared(&to[line][i], read);
  }
}

// Stores the tile, or its part of the sums.
__device__ void StoreSums(const Convolution& v, int64_t group, int64_t row,
                          int64_t column, int64_t part,
                          const float (&sums)[kPatch][kPatch]) {
  for (int j = 0; j < kPatch; ++j) {
    ConvColumn to = ConvColumnAt(v, column + Across() + kEdge * j);
    for (int i = 0; i < kPatch; ++i) {
      int64_t channel = row + kPatch * Down() + i;
      if (!to.exists || channel >= v.m) continue;
      channel += group * v.m;
      int64_t at = (to.image * v.group * v.m + channel) * v.plane + to.element;
      if (v.splits > 1) {
        v.partial[part * v.size + at] = sums[i][j];
      } else {
        StoreSum(v, at, channel, sums[i][j]);
      }
    }
  }
}

template <bool kTransposed>
__global__ void __launch_bounds__(kTileThreads)
    TileKernel(Convolution v, int64_t row_tiles, int64_t column_tiles) {
  __shared__ ConvMemory m;
  int64_t block = blockIdx.x;
  int64_t row = block % row_tiles * kSide;
  block /= row_tiles;
  int64_t column = block % column_tiles * kSide;
  block /= column_tiles;
  int64_t group = block % v.group, part = block / v.group;
  // What this thread reads of x.
  ConvColumn own =
      ConvColumnAt(v, column + static_cast<int>(threadIdx.x) % kSide);
  ConvPosition p = ConvPositionOf<kTransposed>(v, own.element);
  int64_t x = (own.image * v.group + group) * v.c * InputPlane<kTransposed>(v);
  float sums[kPatch][kPatch] = {};
  int64_t end = (part + 1) * v.split;
  if (end > v.depth) end = v.depth;
  for (int64_t k = part * v.split; k < end; k += kDepth) {
    __syncthreads();  // all have read what was staged before
    StageWeights<kTransposed>(v, group, row, k, m.weight);
    StageInputs<kTransposed>(v, x, own, p, k, m.x);
    __syncthreads();
    AddProducts(m.weight, m.x, kDepth, sums);
  }
  StoreSums(v, group, row, column, part, sums);
}

__global__ void __launch_bounds__(kThreads) AddPartsKernel(Convolution v) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= v.size) return;
  float sum = 0;
  for (int64_t part = 0; part < v.splits; ++part) {
    sum += v.partial[part * v.size + i];
  }
  StoreSum(v, i, i / v.plane % (v.group * v.m), sum);
}

// ---- few output channels: each result by itself

// An element of y.
struct ConvOutput {
  int64_t channel, group, row, element;
  int64_t x;  // the first element of its group's channels
};

template <bool kTransposed>
__device__ ConvOutput ConvOutputOf(const Convolution& v, int64_t i) {
  ConvOutput o;
  o.element = i % v.plane;
  int64_t channels = v.group * v.m, line = i / v.plane;
  o.channel = line % channels;
  o.group = o.channel / v.m;
  o.row = o.channel % v.m;
  o.x =
      (line / channels * v.group + o.group) * v.c * InputPlane<kTransposed>(v);
  return o;
}

// The sum over the taps of one input channel, from those elements of x and of
// the weight on.
template <bool kTransposed>
__device__ float SumOfTaps(const Convolution& v, int64_t x, int64_t weight,
                           const ConvPosition& p) {
  const int(&in)[3] = InputSizes<kTransposed>(v);
  float sum = 0;
  for (int kd = 0; kd < v.w.kernel[0]; ++kd) {
    int d = IndexAt<kTransposed>(v, 0, p.start[0], kd * v.w.dilation[0]);
    if (d < 0) continue;
    for (int kh = 0; kh < v.w.kernel[1]; ++kh) {
      int h = IndexAt<kTransposed>(v, 1, p.start[1], kh * v.w.dilation[1]);
      if (h < 0) continue;
      int64_t line = x + (static_cast<int64_t>(d) * in[1] + h) * in[2];
      int64_t factors =
          weight +
          (static_cast<int64_t>(kd) * v.w.kernel[1] + kh) * v.w.kernel[2];
      ONNX_FP8_KEEP_LOOP
      for (int kw = 0; kw < v.w.kernel[2]; ++kw) {
        int i = IndexAt<kTransposed>(v, 2, p.start[2], kw * v.w.dilation[2]);
        if (i < 0) continue;
        sum = fmaf(Load(v.x, line + i), Load(v.weight, factors + kw), sum);
      }
    }
  }
  return sum;
}

// Without a number of blocks the compiler spills registers.
template <bool kTransposed>
__global__ void __launch_bounds__(kThreads, 4) OutputsKernel(Convolution v) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= v.size) return;
  ConvOutput o = ConvOutputOf<kTransposed>(v, i);
  ConvPosition p = ConvPositionOf<kTransposed>(v, o.element);
  int64_t weight = WeightsOf<kTransposed>(v, o.group, o.row);
  int64_t step = kTransposed ? v.m * v.w.taps : v.w.taps;  // of a channel
  float sum = 0;
  for (int64_t c = 0; c < v.c; ++c) {
    sum += SumOfTaps<kTransposed>(v, o.x + c * InputPlane<kTransposed>(v),
                                  weight + c * step, p);
  }
  StoreSum(v, i, o.channel, sum);
}

constexpr int kSumThreads = 128;

// A block for each element of y.
template <bool kTransposed>
__global__ void __launch_bounds__(kSumThreads) LongSumsKernel(Convolution v) {
  __shared__ float parts[kSumThreads / 32];
  int64_t i = blockIdx.x;
  ConvOutput o = ConvOutputOf<kTransposed>(v, i);
  ConvPosition p = ConvPositionOf<kTransposed>(v, o.element);
  int64_t weight = WeightsOf<kTransposed>(v, o.group, o.row);
  float sum = 0;
  for (int64_t k = threadIdx.x; k < v.depth; k += kSumThreads) {
    const Tap& tap = v.taps[k];
    float x = InputAt<kTransposed>(v, o.x, p, tap);
    sum = fmaf(x, Load(v.weight, weight + tap.weight), sum);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, lanes);
  }
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x > 0) return;
  float total = 0;
  for (float part : parts) total += part;
  StoreSum(v, i, o.channel, total);
}

// ---- launches

// Fewer output channels would leave most of a tile empty.
constexpr int64_t kFewChannels = 8;
// Sums with more elements are worth a block, if y is smaller than this.
constexpr int64_t kLongSum = 1024, kFewResults = 65536;
// Tiles that fill the largest GPU, and the least depth of a part.
constexpr int64_t kEnoughTiles = 512, kLeastSplit = 512;

unsigned ConvBlocks(int64_t threads) {
  return static_cast<unsigned>(DivideUp(threads, kThreads));
}

// The ways to compute y.
bool UsesTiles(const Convolution& v) { return v.m >= kFewChannels; }
bool IsLongSum(const Convolution& v) {
  return v.depth >= kLongSum && v.size < kFewResults;
}

size_t TapBytes(const Convolution& v) {
  return static_cast<size_t>(
      RoundUp(v.depth * static_cast<int64_t>(sizeof(Tap)), 256));
}

// Taps, and behind them parts of sums.
size_t WorkspaceOf(const Convolution& v) {
  if (!UsesTiles(v) && !IsLongSum(v)) return 0;
  size_t parts = v.splits > 1 ? static_cast<size_t>(v.splits * v.size) : 0;
  return TapBytes(v) + parts * sizeof(float);
}

// Fills in v.taps, and finds memory for parts of sums.
void PrepareSums(const KernelContext& ctx, bool transposed, Convolution& v) {
  size_t bytes = WorkspaceOf(v);
  if (bytes == 0) return;
  auto* memory = static_cast<char*>(ctx.Workspace(bytes));
  auto* taps = reinterpret_cast<Tap*>(memory);
  v.taps = taps;
  v.partial = reinterpret_cast<float*>(memory + TapBytes(v));
  Launch(transposed ? TapsKernel<true> : TapsKernel<false>, ConvBlocks(v.depth),
         kThreads, 0, QueueOf(ctx).stream(), v, taps);
}

struct Tiles {
  int64_t rows, columns, all;
};

Tiles TilesOf(const Convolution& v) {
  int64_t rows = DivideUp(v.m, kSide);
  int64_t columns = DivideUp(v.n * v.plane, kSide);
  return {rows, columns, rows * columns * v.group};
}

void SplitSums(Convolution& v) {
  if (!UsesTiles(v)) return;
  int64_t most = std::max<int64_t>(v.depth / kLeastSplit, 1);
  int64_t wanted = std::min(DivideUp(kEnoughTiles, TilesOf(v).all), most);
  v.split = std::max<int64_t>(RoundUp(DivideUp(v.depth, wanted), kDepth), 1);
  v.splits = std::max<int64_t>(DivideUp(v.depth, v.split), 1);
}

void StartTiles(const KernelContext& ctx, bool transposed, Convolution& v) {
  auto [rows, columns, tiles] = TilesOf(v);
  PrepareSums(ctx, transposed, v);
  Launch(transposed ? TileKernel<true> : TileKernel<false>,
         static_cast<unsigned>(tiles * v.splits), kTileThreads, 0,
         QueueOf(ctx).stream(), v, rows, columns);
  if (v.splits == 1) return;
  Launch(AddPartsKernel, ConvBlocks(v.size), kThreads, 0, QueueOf(ctx).stream(),
         v);
}

// Computes y, which is not empty.
void StartConvolution(const KernelContext& ctx, bool transposed,
                      Convolution& v) {
  if (UsesTiles(v)) return StartTiles(ctx, transposed, v);
  if (IsLongSum(v)) {
    PrepareSums(ctx, transposed, v);
    Launch(transposed ? LongSumsKernel<true> : LongSumsKernel<false>,
           static_cast<unsigned>(v.size), kSumThreads, 0, QueueOf(ctx).stream(),
           v);
    return;
  }
  Launch(transposed ? OutputsKernel<true> : OutputsKernel<false>,
         ConvBlocks(v.size), kThreads, 0, QueueOf(ctx).stream(), v);
}

// ---- operands

const Window::Axes& SpaceOfY(const ConvolutionSizes& z) {
  return z.transposed ? z.w.in : z.w.out;
}

int64_t SizeOfY(const ConvolutionSizes& z) {
  return z.n * z.m * z.group * Window::Product(SpaceOfY(z));
}

ConvolutionOperands OperandsOf(KernelContext& ctx, const ConvolutionSizes& z) {
  DType dtype = ctx.In(0).dtype();
  Check(dtype == DType::kFloat || ctx.NarrowIn(0) != DType::kUndefined, "[",
        ctx.Where(), "] expected float, got ", Name(dtype));
  ConvolutionOperands o = {
      .x = FloatsOf(ctx, 0), .weight = FloatsOf(ctx, 1), .bias = {}, .y = {}};
  if (ctx.HasIn(2)) {
    CheckOperand(ctx, 2, DType::kFloat, {z.m * z.group});
    o.bias = FloatsOf(ctx, 2);
  }
  o.y = FloatsTo(ctx, 0, z.w.ShapeOf(z.n, z.m * z.group, SpaceOfY(z)));
  return o;
}

// By our own kernels. REQUIRES: y is not empty.
Convolution ConvolutionOf(const KernelContext& ctx, const ConvolutionSizes& z,
                          const ConvolutionOperands& o) {
  Convolution v = {.x = o.x,
                   .weight = o.weight,
                   .bias = o.bias,
                   .y = o.y,
                   .n = z.n,
                   .group = z.group,
                   .c = z.c,
                   .m = z.m,
                   .w = OnDevice(ctx, z.w),
                   .depth = z.c * Window::Product(z.w.kernel),
                   .plane = Window::Product(SpaceOfY(z)),
                   .size = SizeOfY(z),
                   .split = 1,
                   .splits = 1,
                   .partial = nullptr,
                   .taps = nullptr};
  SplitSums(v);
  return v;
}

ConvolutionSizes ConvSizes(const KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &weight = Operand(ctx, 1);
  Window w = WindowOver(ctx, x.shape(), KernelOf(ctx));
  int64_t group = GroupOf(ctx, weight.dim(0)), c = weight.dim(1);
  Check(x.dim(1) == c * group, "[", ctx.Where(), "] expected ", c * group,
        " input channels, got ", x.dim(1));
  return {.transposed = false,
          .n = x.dim(0),
          .group = group,
          .c = c,
          .m = weight.dim(0) / group,
          .w = w};
}

ConvolutionSizes ConvTransposeSizes(const KernelContext& ctx) {
  const Tensor &x = Operand(ctx, 0), &weight = Operand(ctx, 1);
  Window w = TransposedWindow(ctx, x.shape(), KernelOf(ctx));
  int64_t group = GroupOf(ctx, x.dim(1));
  Check(weight.dim(0) == x.dim(1), "[", ctx.Where(), "] expected a weight for ",
        x.dim(1), " input channels, got ", weight.dim(0));
  return {.transposed = true,
          .n = x.dim(0),
          .group = group,
          .c = x.dim(1) / group,
          .m = weight.dim(1),
          .w = w};
}

using SizesIn = ConvolutionSizes (*)(const KernelContext&);

template <SizesIn kSizesIn>
void Convolve(KernelContext& ctx) {
  ConvolutionSizes z = kSizesIn(ctx);
  ConvolutionOperands o = OperandsOf(ctx, z);
  if (SizeOfY(z) == 0 || ConvolveByLibrary(ctx, z, o)) return;
  Convolution v = ConvolutionOf(ctx, z, o);
  StartConvolution(ctx, z.transposed, v);
}

template <SizesIn kSizesIn>
size_t Workspace(KernelContext& ctx) {
  ConvolutionSizes z = kSizesIn(ctx);
  ConvolutionOperands o = OperandsOf(ctx, z);
  if (SizeOfY(z) == 0) return 0;
  std::optional<size_t> bytes = LibraryWorkspace(ctx, z, o);
  return bytes ? *bytes : WorkspaceOf(ConvolutionOf(ctx, z, o));
}

}  // namespace

void RegisterConv(KernelRegistry& r) {
  KernelTraits traits{.narrow_in = {0, 1, 2}, .narrow_out = {0}};
  traits.workspace = Workspace<ConvSizes>;
  r.Add("Conv", Convolve<ConvSizes>, traits);
  traits.workspace = Workspace<ConvTransposeSizes>;
  r.Add("ConvTranspose", Convolve<ConvTransposeSizes>, traits);
}

}  // namespace onnx_fp8::cuda
