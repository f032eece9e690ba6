// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/fp8/dequantize_block.h"

#include <algorithm>
#include <bit>

#include "base/check.h"
#include "base/parallel.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/math/vector_math.h"
#include "providers/kernel.h"

namespace onnx_fp8 {
namespace {

void MultiplyBy(const float* s, float* x, int64_t n) {
  VectorMultiply(x, s, x, n);
}

// x[j] · 2^(steps[j] / 128), for bfloat16s that stay normal; 0, infinity and
// NaN do not change.
void AddToExponents(const int16_t* steps, uint16_t* x, int64_t n) {
  OnBestIsa([=] {
    ONNX_FP8_IVDEP
    for (int64_t j = 0; j < n; ++j) {
      auto magnitude = static_cast<uint16_t>(x[j] & 0x7FFF);
      auto step = static_cast<uint16_t>(steps[j]);
      bool moves = magnitude != 0 && magnitude < 0x7F80;
      x[j] = static_cast<uint16_t>(x[j] + (moves ? step : 0));
    }
  });
}

// x = apply(decode(q), the entry of `blocks` for the element's block), in
// strips that stay in the first-level cache. Uses all threads.
template <typename Block, typename T>
void ForStrips(const BlockGrid& grid, const std::vector<Block>& blocks,
               const void* q, T* x, void (*decode)(const uint8_t*, T*, int64_t),
               void (*apply)(const Block*, T*, int64_t)) {
  auto codes = static_cast<const uint8_t*>(q);
  int64_t grain = std::max<int64_t>(1, kTaskElements / (grid.columns + 1));
  ParallelFor(grid.rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<Block> spread(static_cast<size_t>(grid.columns));
    for (int64_t i = begin; i < end; ++i) {
      if (i == begin || i % grid.block_rows == 0) {
        SpreadAcross(grid, blocks.data() + i / grid.block_rows * grid.across,
                     spread.data());
      }
      for (int64_t j = 0; j < grid.columns; j += kStrip) {
        int64_t n = std::min(kStrip, grid.columns - j);
        int64_t at = i * grid.columns + j;
        decode(codes + at, x + at, n);
        apply(spread.data() + j, x + at, n);
      }
    }
  });
}

void DequantizeBlock(KernelContext& ctx) {
  const Tensor& q = ctx.In(0);
  Check(IsFloat8(q.dtype()), "[", ctx.Where(),
        "] expected an 8-bit float, got ", Name(q.dtype()));
  BlockGrid grid = GridOf(ctx, q, "block_rows", "block_columns");
  std::vector<float> scales = ScalesIn(ctx, 1, grid);
  DequantizeTo(q.dtype(), q.raw(), grid, scales,
               ctx.Out(0, DType::kFloat, q.shape()).data<float>());
}

}  // namespace

void DequantizeTo(DType dtype, const void* q, const BlockGrid& grid,
                  const std::vector<float>& scales, float* x) {
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  auto decode =
      dtype == DType::kE4M3 ? kernels.decode_e4m3 : kernels.decode_e5m2;
  ForStrips(grid, scales, q, x, decode, MultiplyBy);
}

bool ExactInBFloat16(const std::vector<float>& scales) {
  return std::ranges::all_of(scales, [](float scale) {
    uint32_t bits = std::bit_cast<uint32_t>(scale), exponent = bits >> 23;
    return (bits & 0x007FFFFF) == 0 && exponent >= 127 - 110 &&
           exponent <= 127 + 111;
  });
}

void DequantizeToBFloat16(DType dtype, const void* q, const BlockGrid& grid,
                          const std::vector<float>& scales, uint16_t* x) {
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  auto widen = dtype == DType::kE4M3 ? kernels.widen_e4m3 : kernels.widen_e5m2;
  std::vector<int16_t> steps(scales.size());
  std::ranges::transform(scales, steps.begin(), [](float scale) {
    auto exponent = static_cast<int32_t>(std::bit_cast<uint32_t>(scale) >> 23);
    return static_cast<int16_t>((exponent - 127) * 128);
  });
  ForStrips(grid, steps, q, x, widen, AddToExponents);
}

void RegisterDequantizeBlock(KernelRegistry& r) {
  r.Add("DequantizeBlock", DequantizeBlock, {}, kDomain);
}

std::vector<float> ScalesIn(const KernelContext& ctx, size_t input,
                            const BlockGrid& grid) {
  const Tensor& t = ctx.In(input);
  Check(t.dtype() == DType::kFloat || t.dtype() == DType::kE8M0, "[",
        ctx.Where(), "] expected scales of float or float8e8m0, got ",
        Name(t.dtype()));
  Check(t.shape() == Shape({grid.down, grid.across}) ||
            (t.rank() == 0 && grid.blocks() == 1),
        "[", ctx.Where(), "] expected scales of shape [", grid.down, ",",
        grid.across, "], got ", ToString(t.shape()));
  std::vector<float> scales(static_cast<size_t>(t.size()));
  for (int64_t i = 0; i < t.size(); ++i) {
    scales[static_cast<size_t>(i)] = t.dtype() == DType::kFloat
                                         ? t.data<float>()[i]
                                         : Decode(t.data<E8M0>()[i]);
  }
  return scales;
}

}  // namespace onnx_fp8
