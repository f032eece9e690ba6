// SPDX-License-Identifier: Apache-2.0
//
// QuantizeTensor, QuantizeWith, UpdateScale. Bytes and scales are the CPU's.
// Traffic: x is read once more where nobody has measured its amax; then it is
// read once, and q and its transpose are written once.
#include <cmath>
#include <limits>

#include "providers/cuda/core/amax.h"
#include "providers/cuda/core/check_quantize.h"
#include "providers/cuda/core/elementwise.h"
#include "providers/cuda/core/encode.h"
#include "providers/cuda/core/floats.h"
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
  DeviceAmax* amax;           // of x
  bool measured;              // amax is known before
  uint8_t *q, *q_transposed;  // null: nobody reads the codes
  int64_t columns;            // of x as a matrix
  float *scale, *amax_out;
};

__device__ float GivenScale(const Quantization& z) {
  return z.scale_in ? *z.scale_in : 0.0f;
}

// Measures x, unless its scale is given: then it is measured while it is
// encoded.
__global__ void __launch_bounds__(kThreads) MeasureKernel(Quantization z) {
  bool later = (z.q || z.q_transposed) && GivenScale(z) != 0;
  if (later) return;
  AmaxPart seen;
  int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads * kPerThread;
  for (int64_t at =
           (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) *
           kPerThread;
       at < z.n; at += stride) {
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

// The factor of x. The first thread of all writes the scale.
__device__ float FactorOf(const Quantization& z, bool first_block) {
  float given = GivenScale(z);
  float factor = 1.0f / given;
  if (given == 0) factor = OwnFactor(z.q_max, z.amax);
  if (z.scale && first_block && threadIdx.x == 0) {
    *z.scale = given == 0 ? 1.0f / factor : given;
  }
  return factor;
}

// Whether x is measured while it is encoded.
__device__ bool MeasuresLate(const Quantization& z) {
  return GivenScale(z) != 0 && !z.measured;
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
__global__ void __launch_bounds__(kThreads) EncodeKernel(Quantization z) {
  float factor = FactorOf(z, blockIdx.x == 0);
  int64_t at =
      (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kPerThread;
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

// The same, and the transpose of the codes. REQUIRES: rows and columns are
// multiples of 4.
template <bool kE4M3>
__global__ void __launch_bounds__(kTransposeThreads)
    EncodeTransposeKernel(Quantization z) {
  float factor = FactorOf(z, blockIdx.x == 0 && blockIdx.y == 0);
  AmaxPart seen;
  int64_t rows = z.n / z.columns;
  TransposeTile(
      [&](int64_t row, int64_t column) -> uint32_t {
        if (row >= rows || column >= z.columns) return 0;
        int64_t at = row * z.columns + column;
        uint32_t codes = EncodeWord<kE4M3>(z, at, factor, seen);
        if (z.q) *reinterpret_cast<uint32_t*>(z.q + at) = codes;
        return codes;
      },
      [&](int64_t column, int64_t row, uint32_t codes) {
        if (row >= rows || column >= z.columns) return;
        *reinterpret_cast<uint32_t*>(z.q_transposed + column * rows + row) =
            codes;
      });
  if (MeasuresLate(z)) seen.AddTo(z.amax);
}

// After all blocks have measured.
__global__ void WriteAmaxKernel(const DeviceAmax* amax, float* out) {
  *out = AmaxIn(*amax);
}

void Quantize(KernelContext& ctx, const float* scale_in) {
  CheckQuantize(ctx);
  const Tensor& x = Operand(ctx, 0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  Queue& queue = QueueOf(ctx);
  auto* known = reinterpret_cast<const DeviceAmax*>(ctx.KnownAmax());
  Quantization z = {.x = FloatsOf(ctx, 0),
                    .n = x.size(),
                    .q_max = ctx.Float("q_max", 0.0f),
                    .scale_in = scale_in,
                    .amax = const_cast<DeviceAmax*>(known),
                    .measured = known != nullptr,
                    .q = nullptr,
                    .q_transposed = nullptr,
                    .columns = x.rank() > 0 ? x.dim(-1) : 1,
                    .scale = ScalarResult(ctx, 1),
                    .amax_out = ScalarResult(ctx, 2)};
  if (ctx.HasOut(0)) {
    z.q = static_cast<uint8_t*>(ctx.Out(0, to, x.shape()).raw());
  }
  if (ctx.HasOut(3)) z.q_transposed = TransposedTo(ctx, 3, to, x.shape());
  auto blocks = static_cast<unsigned>(DivideUp(z.n, kThreads * kPerThread));
  if (!known) {
    z.amax = static_cast<DeviceAmax*>(queue.Scratch(sizeof(DeviceAmax)));
    ONNX_FP8_CUDA(
        cudaMemsetAsync(z.amax, 0, sizeof(DeviceAmax), queue.stream()));
    if (blocks > 0) {
      Launch(MeasureKernel, std::min(blocks, kMostBlocks), kThreads, 0,
             queue.stream(), z);
    }
  }
  bool e4m3 = to == DType::kE4M3;
  if (z.q_transposed) {
    Launch(e4m3 ? EncodeTransposeKernel<true> : EncodeTransposeKernel<false>,
           TransposeTiles(z.n / z.columns, z.columns), kTransposeThreads, 0,
           queue.stream(), z);
  } else {
    Launch(e4m3 ? EncodeKernel<true> : EncodeKernel<false>,
           std::max(blocks, 1u), kThreads, 0, queue.stream(), z);
  }
  if (z.amax_out) {
    Launch(WriteAmaxKernel, 1, 1, 0, queue.stream(), z.amax, z.amax_out);
  }
}

void QuantizeTensor(KernelContext& ctx) { Quantize(ctx, nullptr); }

void QuantizeWith(KernelContext& ctx) { Quantize(ctx, GivenScaleIn(ctx, 1)); }

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
  const KernelTraits traits{.uses_amax = true, .narrow_in = {0}};
  r.Add("QuantizeTensor", QuantizeTensor, traits, kDomain);
  r.Add("QuantizeWith", QuantizeWith, traits, kDomain);
  r.Add("QuantizeTensorTranspose", QuantizeTensor, traits, kDomain);
  r.Add("QuantizeWithTranspose", QuantizeWith, traits, kDomain);
  r.Add("UpdateScale", UpdateScale, {.in_place = {{1, 0}, {2, 1}}}, kDomain);
}

}  // namespace onnx_fp8::cuda
