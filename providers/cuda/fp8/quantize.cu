// SPDX-License-Identifier: Apache-2.0
//
// QuantizeTensor, QuantizeWith, QuantizeAmax, Amax, UpdateScale. Bytes and
// scales are the CPU's. One kernel quantizes many tensors. Traffic: x is read
// once more where nobody has measured its amax; then it is read once, and q and
// its transpose, with their zeros, are written once.
#include <cmath>
#include <limits>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/check_quantize.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"
#include "providers/cuda/core/many.h"
#include "providers/cuda/core/result.h"
#include "providers/cuda/core/transpose_tile.h"
#include "providers/cuda/register.h"

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
};

__host__ __device__ MatrixSizes SizesOf(const Quantization& z) {
  return cuda::SizesOf(z.n, z.columns, z.pads);
}

__device__ float GivenScale(const Quantization& z) {
  return z.scale_in ? *z.scale_in : 0.0f;
}

// Measures x, unless its scale is given: then it is measured while it is
// encoded.
__global__ void __launch_bounds__(kThreads)
    MeasureKernel(Many<Quantization> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Quantization z = many.tensors[tensor];
  bool later = (z.q || z.q_transposed) && GivenScale(z) != 0;
  if (later) return;
  AmaxPart seen;
  int64_t block = blockIdx.x - many.begin[tensor];
  int64_t stride =
      static_cast<int64_t>(BlocksOf(many, tensor)) * kThreads * kPerThread;
  for (int64_t at = (block * kThreads + threadIdx.x) * kPerThread; at < z.n;
       at += stride) {
    if (at + kPerThread <= z.n) {
      float x[kPerThread];
      Load4(z.x, at, x);
      for (float v : x) seen.Add(v);
    } else {
      for (int64_t i = at; i < z.n; ++i) seen.Add(Load(z.x, i));
    }
  }
  seen.AddTo(z.amax);
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

// The codes of four elements, which are also measured.
template <bool kE4M3>
__device__ uint32_t EncodeWord(const Quantization& z, int64_t at, float factor,
                               AmaxPart& seen) {
  float x[kPerThread];
  Load4(z.x, at, x);
  uint32_t codes = 0;
  for (int k = 0; k < kPerThread; ++k) {
    codes |= Encode<kE4M3>(x[k] * factor) << 8 * k;
    seen.Add(x[k]);
  }
  return codes;
}

template <bool kE4M3>
__global__ void __launch_bounds__(kThreads)
    EncodeKernel(Many<Quantization> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Quantization z = many.tensors[tensor];
  int64_t block = blockIdx.x - many.begin[tensor];
  float factor = FactorOf(z, block == 0);
  int64_t at = (block * kThreads + threadIdx.x) * kPerThread;
  AmaxPart seen;
  if (z.q && at + kPerThread <= z.n) {
    *reinterpret_cast<uint32_t*>(z.q + at) =
        EncodeWord<kE4M3>(z, at, factor, seen);
  } else if (z.q) {
    for (int64_t i = at; i < z.n; ++i) {
      float x = Load(z.x, i);
      z.q[i] = static_cast<uint8_t>(Encode<kE4M3>(x * factor));
      seen.Add(x);
    }
  }
  if (MeasuresLate(z)) seen.AddTo(z.amax);
}

// The codes of four elements of a row; 0 for those outside x.
template <bool kE4M3>
__device__ uint32_t EncodeInside(const Quantization& z, int64_t rows,
                                 int64_t row, int64_t column, float factor,
                                 AmaxPart& seen) {
  if (row >= rows || column >= z.columns) return 0;
  int64_t at = row * z.columns + column;
  if (z.columns % kCodes == 0) return EncodeWord<kE4M3>(z, at, factor, seen);
  uint32_t codes = 0;
  for (int i = 0; i < kCodes && column + i < z.columns; ++i) {
    float x = Load(z.x, at + i);
    codes |= Encode<kE4M3>(x * factor) << 8 * i;
    seen.Add(x);
  }
  return codes;
}

// The same for a matrix, with its transpose and zeros. REQUIRES: to_rows and
// to_columns are multiples of 4.
template <bool kE4M3>
__global__ void __launch_bounds__(kTransposeThreads)
    EncodeMatrixKernel(Many<Quantization> many) {
  int tensor = TensorOf(many, blockIdx.x);
  const Quantization z = many.tensors[tensor];
  unsigned tile = blockIdx.x - many.begin[tensor];
  float factor = FactorOf(z, tile == 0);
  AmaxPart seen;
  const MatrixSizes sizes = SizesOf(z);
  unsigned across = TilesAcross(sizes.to_columns);
  TransposeTile(
      tile % across, tile / across,
      [&](int64_t row, int64_t column) -> uint32_t {
        if (row >= sizes.to_rows || column >= sizes.to_columns) return 0;
        uint32_t codes =
            EncodeInside<kE4M3>(z, sizes.rows, row, column, factor, seen);
        int64_t to = row * sizes.to_columns + column;
        if (z.q) *reinterpret_cast<uint32_t*>(z.q + to) = codes;
        return codes;
      },
      [&](int64_t column, int64_t row, uint32_t codes) {
        if (!z.q_transposed) return;
        if (row >= sizes.to_rows || column >= sizes.to_columns) return;
        int64_t to = column * sizes.to_rows + row;
        *reinterpret_cast<uint32_t*>(z.q_transposed + to) = codes;
      });
  if (MeasuresLate(z)) seen.AddTo(z.amax);
}

// After all blocks have measured.
__global__ void WriteAmaxKernel(Many<Quantization> many) {
  WriteAmax(many.tensors[blockIdx.x]);
}

// A node whose codes have zeros up to whole units.
bool Pads(const Node& node) {
  return node.op == "QuantizeTensorPadded" || node.op == "QuantizeWithPadded";
}

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
      .amax_out = ScalarResult(ctx, 2)};
  MatrixSizes sizes = SizesOf(z);
  if (ctx.HasOut(0)) {
    Shape shape = z.pads ? Shape{sizes.to_rows, sizes.to_columns} : x.shape();
    z.q = static_cast<uint8_t*>(ctx.Out(0, to, shape).raw());
  }
  if (ctx.HasOut(3)) {
    z.q_transposed = TransposedTo(ctx, 3, to, sizes);
  }
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
  return static_cast<unsigned>(DivideUp(z.n, kThreads * kPerThread));
}

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
  start(MeasureKernel, kThreads, [](const Quantization& z) {
    return z.measured ? 0 : std::min(ElementBlocks(z), kMostBlocks);
  });
  auto encode = [&](bool e4m3, bool by_tiles, Kernel kernel, int threads) {
    start(kernel, threads, [&](const Quantization& z) {
      bool its = z.e4m3 == e4m3 && ByTiles(z) == by_tiles;
      return its ? EncodeBlocks(z) : 0;
    });
  };
  encode(true, false, EncodeKernel<true>, kThreads);
  encode(false, false, EncodeKernel<false>, kThreads);
  encode(true, true, EncodeMatrixKernel<true>, kTransposeThreads);
  encode(false, true, EncodeMatrixKernel<false>, kTransposeThreads);
  start(WriteAmaxKernel, 1, [](const Quantization& z) {
    return z.amax_out && MayMeasureLate(z) ? 1u : 0u;
  });
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
