// SPDX-License-Identifier: Apache-2.0
//
// QuantizeTensor, QuantizeWith, QuantizeAmax, Amax, UpdateScale. Bytes and
// scales are the CPU's. One kernel quantizes many tensors. Traffic: x is read
// once more where nobody has measured its amax; then it is read once, and q and
// its transpose, with their zeros, are written once. Sums of x's columns come
// from the same read; their parts, a float for 128 elements, are written and
// read.
#include <cmath>
#include <limits>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/check_quantize.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/fp8/fragment.h"
#include "providers/cuda/fp8/transpose_layout.h"
#include "providers/kernel.h"
#include "providers/ops/scaled_products.h"

namespace onnx_fp8::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Quantization {
  FloatsIn x;
  int64_t n;
  float q_max;
  const float* scale_in;      // null, or of the value 0: the scale is x's own
  DeviceAmax* amax;           // of x, or zeros
  bool measured;              // amax is known before
  const float* whole_amax;    // of the tensor of which x is a part; null: of x
  uint8_t *q, *q_transposed;  // null: nobody reads the codes
  bool e4m3;                  // else E5M2
  bool pads;                  // codes have zeros up to whole units
  int64_t columns;            // of x as a matrix
  float *scale, *amax_out;
  float* sums;  // of columns, for each row of tiles; null: nobody reads them
};

__host__ __device__ MatrixSizes SizesOf(const Quantization& z) {
  return cuda::SizesOf(z.n, z.columns, z.pads);
}

__device__ float GivenScale(const Quantization& z) {
  return z.scale_in ? *z.scale_in : 0.0f;
}

// Whether a vector of x and its codes can be moved at once.
__device__ bool IsAligned(const Quantization& z) {
  auto address = [](const void* p) { return reinterpret_cast<uintptr_t>(p); };
  return address(z.x.data) % 16 == 0 && address(z.q) % 8 == 0;
}

// Elements that a block of threads holds.
constexpr int kRun = kThreads * kFragmentSize;
static_assert(kThreads == RunLayout<Storage::kFloat>::kThreadsOfRun);

// Measures x, unless its scale is given: then it is measured while it is
// encoded.
template <bool kNarrow>
__global__ void __launch_bounds__(kThreads, 1)
    MeasureKernel(Many<Quantization> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Quantization& z = many.tensors[tensor];
  bool later = (z.q || z.q_transposed) && GivenScale(z) != 0;
  if (later) return;
  AmaxPart seen;
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t stride = static_cast<int64_t>(BlocksOf(many, tensor)) * kRun;
  WithStorage<kNarrow>(z.x.storage, [&](auto storage) {
    constexpr Storage kStorage = decltype(storage)::value;
    ONNX_FP8_KEEP_LOOP
    for (int64_t first = block * kRun; first < z.n; first += stride) {
      Vector x[kVectors<kStorage>];
      LoadFragment<kStorage>(z.x.data, IsAligned(z),
                             RunLayout<kStorage>(first, z.n), x);
      FinitePeak<kStorage>(x, seen);
    }
  });
  seen.AddOfBlock(z.amax);
}

// The result of an amax that is complete.
__device__ void WriteAmax(const Quantization& z) {
  *z.amax_out = AmaxIn(*z.amax);
}

// Whether x may be measured while it is encoded: if its scale is not 0.
__host__ __device__ bool MayMeasureLate(const Quantization& z) {
  return z.scale_in && !z.measured;
}

// The factor of x. The first thread of all writes the scale, and the amax if
// that is complete.
__device__ float FactorOf(const Quantization& z, bool first_block) {
  float given = GivenScale(z);
  float factor = 1.0f / given;
  if (given == 0) {
    factor = z.whole_amax ? FactorOfAmax(z.q_max, *z.whole_amax)
                          : OwnFactor(z.q_max, z.amax);
  }
  if (first_block && threadIdx.x == 0) {
    if (z.scale) *z.scale = given == 0 ? 1.0f / factor : given;
    if (z.amax_out && !MayMeasureLate(z)) WriteAmax(z);
  }
  return factor;
}

// Whether x is measured while it is encoded.
__device__ bool MeasuresLate(const Quantization& z) {
  return MayMeasureLate(z) && GivenScale(z) != 0;
}

template <bool kNarrow>
__global__ void __launch_bounds__(kThreads, 1)
    EncodeKernel(Many<Quantization> many) {
  unsigned of_all = BlockFromEnd();
  int tensor = TensorOf(many, of_all);
  const Quantization& z = many.tensors[tensor];
  int64_t block = of_all - many.begin[tensor];
  AmaxPart seen;
  if (!z.q) {
    FactorOf(z, block == 0);
  } else {
    WithStorage<kNarrow>(z.x.storage, [&](auto storage) {
      constexpr Storage kStorage = decltype(storage)::value;
      RunLayout<kStorage> run(block * kRun, z.n);
      Vector x[kVectors<kStorage>];
      LoadFragment<kStorage>(z.x.data, IsAligned(z), run, x);
      float factor = FactorOf(z, block == 0);
      FinitePeak<kStorage>(x, seen);
      bool special = seen.non_finite || IsSpecial(factor);
      EncodeFragment<kStorage>(x, z.e4m3, special, z.q, IsAligned(z), run,
                               [&](int, int) { return factor; });
    });
  }
  if (MeasuresLate(z)) seen.AddOfBlock(z.amax);
}

// ---- codes and their transpose

// The words of codes of a row, some of which may lie behind its `left` codes.
template <Storage kStorage>
__device__ void StoreWords(uint8_t* to, bool together, int left,
                           const VectorCodes<kStorage>& codes) {
  if constexpr (kStorage != Storage::kFloat) {
    if (together && left >= kVectorWidth<kStorage>) {
      *reinterpret_cast<uint2*>(to) =
          make_uint2(codes.words[0], codes.words[1]);
      return;
    }
  }
  ONNX_FP8_UNROLL
  for (int w = 0; w < kVectorWidth<kStorage> / kCodes; ++w) {
    if (w * kCodes >= left) return;
    reinterpret_cast<uint32_t*>(to)[w] = codes.words[w];
  }
}

template <Storage kStorage>
__device__ void EncodeTile(const Quantization& z, const MatrixSizes& sizes,
                           int64_t row, int64_t column, bool first_block,
                           TileOfWords* tile, TileOfSums* sums,
                           AmaxPart& seen) {
  using In = TransposeLayout<kStorage>;
  In in(sizes.rows, z.columns, row, column);
  bool aligned = IsAligned(z) && z.columns % kVectorWidth<kStorage> == 0;
  Vector x[kVectors<kStorage>];
  LoadFragment<kStorage>(z.x.data, aligned, in, x);
  if (sums) PutColumnSums<kStorage>(x, in, *sums);
  float factor = FactorOf(z, first_block);
  FinitePeak<kStorage>(x, seen);
  bool special = seen.non_finite || IsSpecial(factor);
  bool together = IsAligned(z) && sizes.to_columns % 8 == 0;
  int64_t to = (row + in.row) * sizes.to_columns + column + in.column;
  int rows = In::Left(sizes.to_rows - row) - in.row;
  int left = In::Left(sizes.to_columns - column) - in.column;
  auto of_all = [&](int) { return factor; };
  ONNX_FP8_UNROLL
  for (int line = 0; line < In::kLines; ++line) {
    VectorCodes<kStorage> codes[kCodes];
    ONNX_FP8_UNROLL
    for (int i = 0; i < kCodes; ++i) {
      int v = line * kCodes + i;
      codes[i] = z.e4m3 ? CodesOfVector<kStorage, true>(x[v], of_all, special)
                        : CodesOfVector<kStorage, false>(x[v], of_all, special);
      ClearOutside<kStorage>(in(v), codes[i]);
      if (z.q && v < rows) {
        StoreWords<kStorage>(z.q + to + v * sizes.to_columns, together, left,
                             codes[i]);
      }
    }
    PutTransposed<kStorage>(codes, in, line, tile);
  }
}

// Encodes a matrix as EncodeKernel does. It also writes the transpose of the
// codes, and the zeros around both. If kSums, it also writes the sums of the
// columns. REQUIRES: to_rows and to_columns are multiples of 4.
template <bool kNarrow, bool kSums>
__global__ void __launch_bounds__(32 * kTransposeTileWarps, kNarrow ? 2 : 1)
    EncodeMatrixKernel(Many<Quantization> many) {
  __shared__ TileOfWords words[kCodes];
  TileOfWords* tile = words;
  TileOfSums* sums = nullptr;
  if constexpr (kSums) {
    __shared__ TileOfSums of_tile;
    sums = &of_tile;
  }
  unsigned of_all = BlockFromEnd();
  int tensor = TensorOf(many, of_all);
  const Quantization& z = many.tensors[tensor];
  unsigned number = of_all - many.begin[tensor];
  AmaxPart seen;
  const MatrixSizes sizes = SizesOf(z);
  unsigned across = std::max(TilesAcross(sizes.to_columns), 1u);
  int64_t row = static_cast<int64_t>(number / across) * kTransposeSide;
  int64_t column = static_cast<int64_t>(number % across) * kTransposeSide;
  WithStorage<kNarrow>(z.x.storage, [&](auto storage) {
    EncodeTile<decltype(storage)::value>(z, sizes, row, column, number == 0,
                                         tile, sums, seen);
  });
  __syncthreads();
  if (z.q_transposed) {
    StoreTransposedTile(z.q_transposed, sizes.to_rows, sizes.to_columns, row,
                        column, tile);
  }
  if constexpr (kSums) {
    WriteColumnSums<kNarrow>(*sums, row, column, sizes.rows, z.columns, z.sums);
  }
  if (MeasuresLate(z)) seen.AddOfBlock(z.amax);
}

// After all blocks have measured.
__global__ void WriteAmaxKernel(Many<Quantization> many) {
  WriteAmax(many.tensors[blockIdx.x]);
}

// A node whose codes have zeros up to whole units.
bool Pads(const Node& node) {
  return node.op == "QuantizeTensorPadded" || node.op == "QuantizeWithPadded";
}

size_t SumsBytes(KernelContext& ctx) { return ColumnSumsBytes(ctx); }

Quantization QuantizationOf(KernelContext& ctx) {
  CheckQuantize(ctx);
  const Tensor& x = Operand(ctx, 0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  const AmaxCell* known = ctx.KnownAmax();
  AmaxCell* cell = known ? const_cast<AmaxCell*>(known) : ctx.OwnAmax(0);
  Quantization z = {
      .x = FloatsOf(ctx, 0),
      .n = x.size(),
      .q_max = ctx.Float("q_max", 0.0f),
      .scale_in = ctx.num_inputs() < 2 ? nullptr : GivenScaleIn(ctx, 1),
      .amax = reinterpret_cast<DeviceAmax*>(cell),
      .measured = known != nullptr,
      .whole_amax = nullptr,
      .q = nullptr,
      .q_transposed = nullptr,
      .e4m3 = to == DType::kE4M3,
      .pads = Pads(ctx.node()),
      .columns = x.rank() > 0 ? x.dim(-1) : 1,
      .scale = ScalarResult(ctx, 1),
      .amax_out = ScalarResult(ctx, 2),
      .sums = static_cast<float*>(ctx.Workspace(SumsBytes(ctx)))};
  MatrixSizes sizes = SizesOf(z);
  if (ctx.HasOut(0)) {
    Shape shape = z.pads ? Shape{sizes.to_rows, sizes.to_columns} : x.shape();
    z.q = static_cast<uint8_t*>(ctx.Out(0, to, shape).raw());
  }
  if (ctx.HasOut(kTransposedCodes)) {
    z.q_transposed = TransposedTo(ctx, kTransposedCodes, to, sizes);
  }
  Check(!z.sums || z.q_transposed, "[", ctx.Where(),
        "] expected transposed codes beside the sums of columns, got none");
  return z;
}

Quantization QuantizationByAmax(KernelContext& ctx) {
  CheckQuantize(ctx);
  const Tensor& x = Operand(ctx, 0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Quantization z = {.x = FloatsOf(ctx, 0),
                    .n = x.size(),
                    .q_max = ctx.Float("q_max", 0.0f),
                    .scale_in = GivenScaleIn(ctx, 2),
                    .measured = true,
                    .whole_amax = GivenScaleIn(ctx, 1),
                    .e4m3 = to == DType::kE4M3,
                    .columns = x.rank() > 0 ? x.dim(-1) : 1,
                    .scale = ScalarResult(ctx, 1)};
  if (ctx.HasOut(0)) {
    z.q = static_cast<uint8_t*>(ctx.Out(0, to, x.shape()).raw());
  }
  return z;
}

Quantization AmaxAlone(KernelContext& ctx) {
  const AmaxCell* known = ctx.KnownAmax();
  AmaxCell* cell = known ? const_cast<AmaxCell*>(known) : ctx.OwnAmax(0);
  return {.x = FloatsOf(ctx, 0),
          .n = Operand(ctx, 0).size(),
          .q_max = 1,
          .amax = reinterpret_cast<DeviceAmax*>(cell),
          .measured = known != nullptr,
          .columns = 1,
          .amax_out = ScalarResult(ctx, 0)};
}

Quantization WorkOf(KernelContext& ctx) {
  const std::string& op = ctx.node().op;
  return op == "Amax"           ? AmaxAlone(ctx)
         : op == "QuantizeAmax" ? QuantizationByAmax(ctx)
                                : QuantizationOf(ctx);
}

unsigned ElementBlocks(const Quantization& z) {
  return static_cast<unsigned>(DivideUp(z.n, kRun));
}

bool IsNarrow(const Quantization& z) { return z.x.storage != Storage::kFloat; }

// Whether the codes are written as a matrix, by EncodeMatrixKernel.
bool ByTiles(const Quantization& z) { return z.pads || z.q_transposed; }

// One block at least writes the scalars.
unsigned EncodeBlocks(const Quantization& z) {
  if (!ByTiles(z)) return z.q ? std::max(ElementBlocks(z), 1u) : 1;
  MatrixSizes sizes = SizesOf(z);
  dim3 tiles = TransposeTiles(sizes.to_rows, sizes.to_columns);
  return std::max(tiles.x * tiles.y, 1u);
}

void QuantizeMany(std::span<KernelContext> nodes) {
  cudaStream_t stream = QueueOf(nodes[0]).stream();
  std::vector<Quantization> all;
  for (KernelContext& ctx : nodes) all.push_back(WorkOf(ctx));
  using Kernel = void (*)(Many<Quantization>);
  auto start = [&](Kernel kernel, int threads, auto blocks_of) {
    ForMany(all, blocks_of, [&](const Many<Quantization>& many) {
      Launch(kernel, many.blocks, threads, 0, stream, many);
    });
  };
  for (bool narrow : {true, false}) {
    start(narrow ? MeasureKernel<true> : MeasureKernel<false>, kThreads,
          [narrow](const Quantization& z) {
            bool its = !z.measured && IsNarrow(z) == narrow;
            return its ? std::min(ElementBlocks(z), kMostBlocks) : 0u;
          });
  }
  auto encode = [&](bool narrow, bool by_tiles, bool sums, Kernel kernel,
                    int threads) {
    start(kernel, threads, [=](const Quantization& z) {
      bool its = IsNarrow(z) == narrow && ByTiles(z) == by_tiles &&
                 (z.sums != nullptr) == sums;
      return its ? EncodeBlocks(z) : 0u;
    });
  };
  constexpr int kOfTile = 32 * kTransposeTileWarps;
  encode(true, false, false, EncodeKernel<true>, kThreads);
  encode(false, false, false, EncodeKernel<false>, kThreads);
  encode(true, true, false, EncodeMatrixKernel<true, false>, kOfTile);
  encode(false, true, false, EncodeMatrixKernel<false, false>, kOfTile);
  encode(true, true, true, EncodeMatrixKernel<true, true>, kOfTile);
  encode(false, true, true, EncodeMatrixKernel<false, true>, kOfTile);
  start(WriteAmaxKernel, 1, [](const Quantization& z) {
    return z.amax_out && MayMeasureLate(z) ? 1u : 0u;
  });
  for (size_t i = 0; i < nodes.size(); ++i) {
    AddColumnSums(nodes[i], all[i].sums);
  }
}

void Quantize(KernelContext& ctx) { QuantizeMany({&ctx, 1}); }

struct Update {
  const float *amax, *history, *scale, *q_max;
  const bool* ok;
  float *new_history, *new_scale;
  int64_t n, h;
  bool most_recent;
  float two_to_margin;
};

// A slot is a column of the history; see UpdateSlot of the CPU.
__global__ void __launch_bounds__(kThreads) UpdateScaleKernel(Update u) {
  int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= u.n) return;
  float amax = u.amax[i], scale = u.scale[i];
  bool enters = *u.ok && amax > 0 && amax < kInfinity;
  float m = amax;
  for (int64_t j = 0; j < u.h; ++j) {
    float old = u.history[j * u.n + i];
    float next = j < u.h - 1 ? u.history[(j + 1) * u.n + i] : amax;
    m = fmaxf(m, next != next ? kInfinity : next);
    if (u.new_history) {
      u.new_history[j * u.n + i] = !enters ? old : j > 0 ? next : 0.0f;
    }
  }
  if (u.most_recent) m = amax;
  if (enters && m < kInfinity) {
    auto factor = static_cast<float>(static_cast<double>(u.q_max[i]) / m);
    scale = fmaxf(1.0f / factor * u.two_to_margin, 0x1p-126f);
  }
  if (u.new_scale) u.new_scale[i] = scale;
}

void UpdateScale(KernelContext& ctx) {
  const Tensor &amax = Operand(ctx, 0), &history = Operand(ctx, 1);
  int64_t n = amax.size();
  Check(amax.rank() == 1 && history.rank() == 2 && history.dim(1) == n &&
            history.dim(0) > 0,
        "[", ctx.Where(), "] expected amax [N], history [H,N] with H > 0, got ",
        ToString(amax.shape()), ToString(history.shape()));
  CheckOperand(ctx, 0, DType::kFloat, {n});
  CheckOperand(ctx, 1, DType::kFloat, history.shape());
  CheckOperand(ctx, 2, DType::kFloat, {n});
  CheckOperand(ctx, 3, DType::kFloat, {n});
  const Tensor& ok = Operand(ctx, 4);
  Check(ok.dtype() == DType::kBool && ok.size() == 1, "[", ctx.Where(),
        "] expected one bool, got ", Name(ok.dtype()), ToString(ok.shape()));
  float margin = ctx.Float("margin", 0.0f);
  Check(std::fabs(margin) <= 100 && margin == std::floor(margin), "[",
        ctx.Where(), "] expected a whole margin from -100 to 100, got ",
        margin);
  auto in = [&](size_t i) {
    return static_cast<const float*>(ctx.In(i).raw());
  };
  auto out = [&](size_t i, const Shape& shape) -> float* {
    if (!ctx.HasOut(i)) return nullptr;
    return static_cast<float*>(ctx.Out(i, DType::kFloat, shape).raw());
  };
  Update u = {in(0),
              in(1),
              in(2),
              in(3),
              static_cast<const bool*>(ok.raw()),
              out(0, history.shape()),
              out(1, {n}),
              n,
              history.dim(0),
              ctx.Int("most_recent", 0) != 0,
              std::exp2(margin)};
  if (n == 0) return;
  Launch(UpdateScaleKernel, static_cast<unsigned>(DivideUp(n, kThreads)),
         kThreads, 0, QueueOf(ctx).stream(), u);
}

}  // namespace

void RegisterQuantize(KernelRegistry& r) {
  const KernelTraits traits{.uses_amax = true,
                            .own_amaxes = 1,
                            .narrow_in = {0},
                            .workspace = SumsBytes,
                            .many = QuantizeMany};
  for (const char* op : {"QuantizeTensor", "QuantizeWith",
                         "QuantizeTensorTranspose", "QuantizeWithTranspose",
                         "QuantizeTensorPadded", "QuantizeWithPadded"}) {
    r.Add(op, Quantize, traits, kDomain);
  }
  r.Add("Amax", Quantize, traits, kDomain);
  r.Add("QuantizeAmax", Quantize, {.narrow_in = {0}, .many = QuantizeMany},
        kDomain);
  r.Add("UpdateScale", UpdateScale, {.in_place = {{1, 0}, {2, 1}}}, kDomain);
}

}  // namespace onnx_fp8::cuda
