// SPDX-License-Identifier: Apache-2.0
//
// QuantizeBlock. The results equal its body in graph/schemas/quantize_block.cc
// bit for bit.
#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>

#include "base/parallel.h"
#include "onnx_fp8/float8.h"
#include "providers/cpu/fp8/dequantize_block.h"
#include "providers/cpu/fp8/quantize.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/ivdep.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/cpu/math/vector_math.h"
#include "providers/cpu/stored.h"
#include "providers/kernel.h"
#include "providers/ops/arguments.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

// Rows that a thread measures and then encodes while they are in its cache.
constexpr int64_t kBandRows = 128;
constexpr int64_t kLongBlock = 64;

// REQUIRES: x positive and normal.
float PowerOfTwoBelow(float x) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(x) & 0x7F800000u);
}

struct BlockRule {
  float q_max = 1.0f;
  int64_t pow2 = 0;
  float largest_power = 1.0f;  // of two, in the format

  // The factor of a block whose largest finite |x| is a.
  float FactorOf(float a) const {
    float v = std::max(a, 1e-12f);
    if (pow2 == 2) return 1.0f / (PowerOfTwoBelow(v) / largest_power);
    double ratio = static_cast<double>(q_max) / v;
    auto exact = static_cast<float>(std::clamp(ratio, 0x1p-126, 0x1p126));
    return pow2 == 1 ? PowerOfTwoBelow(exact) : exact;
  }
};

// peaks[j] = max(peaks[j], |x[i][j]| if finite): the bits of magnitudes have
// the same order as the magnitudes. Returns whether all are finite. max() is
// the only comparison: the compiler would branch on others, and then can't
// vectorize.
bool PeaksOfColumns(const float* x, int64_t rows, int64_t columns,
                    float* peaks) {
  int32_t special = 0;
  int32_t* to_special = &special;
  OnBestIsa([=] {
    constexpr int32_t kLargest = 0x7F7FFFFF;
    int32_t all = 0;
    for (int64_t i = 0; i < rows; ++i) {
      const float* row = x + i * columns;
      ONNX_FP8_IVDEP  // peaks does not overlap x
      for (int64_t j = 0; j < columns; ++j) {
        auto magnitude = static_cast<int32_t>(
            __builtin_bit_cast(uint32_t, row[j]) & 0x7FFFFFFFu);
        int32_t room = kLargest - magnitude;  // negative where not finite
        all |= room;
        int32_t seen = magnitude & ~(room >> 31);
        auto peak = __builtin_bit_cast(int32_t, peaks[j]);
        peaks[j] = __builtin_bit_cast(float, peak > seen ? peak : seen);
      }
    }
    *to_special = all;
  });
  return special >= 0;
}

class BlockQuantizer {
 public:
  BlockQuantizer(const BlockGrid& grid, const BlockRule& rule, DType to,
                 const Tensor& x, uint8_t* q)
      : g_(grid), rule_(rule), x_(x), q_(q) {
    amax_ = KernelsFor(ActiveIsa()).amax;
    encode_ = EncoderOf(to);
    peaks_.resize(static_cast<size_t>(g_.blocks()));
    factors_.resize(peaks_.size());
    if (g_.down < NumThreads()) {  // at least one band for each thread
      band_rows_ = std::clamp<int64_t>(g_.rows / NumThreads(), 1, kBandRows);
    }
  }

  // Bands are rows of one row of blocks. If one band holds the whole row of
  // blocks, it is measured and encoded at once; otherwise all bands are
  // measured first.
  void Run() {
    int64_t bands = DivideUp(g_.block_rows, band_rows_);  // per row
    int64_t rows = std::min(g_.block_rows, band_rows_);
    int64_t grain =
        std::max<int64_t>(1, kTaskElements / (rows * g_.columns + 1));
    if (bands == 1) {
      ParallelFor(g_.down, grain, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          int64_t first = i * g_.block_rows, last = g_.RowEnd(i);
          Measure(first, last, peaks_.data() + i * g_.across);
          SetFactors(i);
          Encode(i, first, last);
        }
      });
      return;
    }
    std::vector<float> parts(static_cast<size_t>(bands * g_.blocks()));
    auto for_bands = [&](auto fn) {
      ParallelFor(g_.down * bands, grain, [&](int64_t begin, int64_t end) {
        for (int64_t k = begin; k < end; ++k) {
          int64_t i = k / bands, last = g_.RowEnd(i);
          int64_t first =
              std::min(i * g_.block_rows + k % bands * band_rows_, last);
          fn(k, i, first, std::min(first + band_rows_, last));
        }
      });
    };
    for_bands([&](int64_t k, int64_t, int64_t first, int64_t last) {
      Measure(first, last, parts.data() + k * g_.across);
    });
    for (int64_t i = 0; i < g_.down; ++i) {
      float* peaks = peaks_.data() + i * g_.across;
      for (int64_t band = 0; band < bands; ++band) {
        const float* part = parts.data() + (i * bands + band) * g_.across;
        for (int64_t j = 0; j < g_.across; ++j) {
          peaks[j] = std::max(peaks[j], part[j]);
        }
      }
      SetFactors(i);
    }
    for_bands([&](int64_t, int64_t i, int64_t first, int64_t last) {
      Encode(i, first, last);
    });
  }

  const std::vector<float>& factors() const { return factors_; }
  float amax() const {
    if (special_) return std::numeric_limits<float>::infinity();
    float largest = 0;
    for (float peak : peaks_) largest = std::max(largest, peak);
    return largest;
  }

 private:
  const float* Rows(int64_t first, int64_t last) const {
    int64_t rows = last - first;
    float* wide = x_.narrow() ? WideRows<float>(rows, g_.columns) : nullptr;
    return x_.Read(first * g_.columns, rows * g_.columns, wide);
  }

  // a[j] = the largest finite |x| of these rows in block column j.
  void Measure(int64_t first, int64_t last, float* a) {
    const float* x = Rows(first, last);
    int64_t rows = last - first;
    if (g_.across == 1) {
      *a = Largest(x, rows * g_.columns);
    } else if (rows == 1 && g_.block_columns > 1) {
      LargestOfBlocks(x, a);
    } else if (g_.block_columns == 1) {
      std::fill(a, a + g_.across, 0.0f);
      Note(PeaksOfColumns(x, rows, g_.columns, a));
    } else {
      std::vector<float> peaks(static_cast<size_t>(g_.columns), 0.0f);
      Note(PeaksOfColumns(x, rows, g_.columns, peaks.data()));
      LargestOfBlocks(peaks.data(), a);
    }
  }

  void LargestOfBlocks(const float* row, float* a) {
    for (int64_t j = 0; j < g_.across; ++j) {
      int64_t at = j * g_.block_columns;
      a[j] = Largest(row + at, std::min(g_.block_columns, g_.columns - at));
    }
  }

  float Largest(const float* x, int64_t n) {
    Amax amax = amax_(x, n);
    Note(!amax.non_finite);
    return amax.finite;
  }

  void Note(bool finite) {
    if (!finite) special_ = true;
  }

  void SetFactors(int64_t block_row) {
    for (int64_t j = 0; j < g_.across; ++j) {
      auto at = static_cast<size_t>(block_row * g_.across + j);
      factors_[at] = rule_.FactorOf(peaks_[at]);
    }
  }

  void Encode(int64_t block_row, int64_t first, int64_t last) {
    if (!q_ || g_.across == 0) return;
    const float* factors = factors_.data() + block_row * g_.across;
    const float* x = Rows(first, last);
    uint8_t* q = q_ + first * g_.columns;
    if (g_.across == 1) {
      return encode_(x, *factors, q, (last - first) * g_.columns);
    }
    // Spreading the factors of one row costs more than many short loops.
    if (last - first == 1 && g_.block_columns >= kLongBlock) {
      for (int64_t j = 0; j < g_.across; ++j) {
        int64_t at = j * g_.block_columns;
        encode_(x + at, factors[j], q + at,
                std::min(g_.block_columns, g_.columns - at));
      }
      return;
    }
    std::vector<float> spread(static_cast<size_t>(g_.columns));
    SpreadAcross(g_, factors, spread.data());
    float scaled[kStrip];
    for (int64_t i = 0; i < last - first; ++i) {
      for (int64_t j = 0; j < g_.columns; j += kStrip) {
        int64_t n = std::min(kStrip, g_.columns - j);
        int64_t at = i * g_.columns + j;
        VectorMultiply(x + at, spread.data() + j, scaled, n);
        encode_(scaled, 1.0f, q + at, n);
      }
    }
  }

  const BlockGrid& g_;
  const BlockRule& rule_;
  StoredIn<float> x_;
  uint8_t* q_;
  int64_t band_rows_ = kBandRows;
  decltype(Float8Kernels::amax) amax_;
  decltype(Float8Kernels::encode_e4m3) encode_;
  std::vector<float> peaks_, factors_;  // (down, across)
  std::atomic<bool> special_ = false;
};

void SetScales(KernelContext& ctx, const BlockGrid& grid, DType dtype,
               const std::vector<float>& factors) {
  Tensor& scale = ctx.Out(1, dtype, {grid.down, grid.across});
  for (size_t i = 0; i < factors.size(); ++i) {
    float value = 1.0f / factors[i];
    if (dtype == DType::kFloat) {
      scale.data<float>()[i] = value;
    } else {
      scale.data<E8M0>()[i] = EncodeE8M0(value);
    }
  }
}

void QuantizeBlock(KernelContext& ctx) {
  const Tensor& x = ctx.In(0);
  auto to = static_cast<DType>(ctx.Int("to", 0));
  auto scale_to = static_cast<DType>(ctx.Int("scale_to", 0));
  BlockRule rule = {ctx.Float("q_max", 0.0f), ctx.Int("pow2", -1),
                    to == DType::kE4M3 ? 0x1p8f : 0x1p15f};
  CheckQuantize(ctx);
  Check(rule.pow2 >= 0 && rule.pow2 <= 2, "[", ctx.Where(),
        "] expected pow2 of 0, 1 or 2, got ", rule.pow2);
  Check(
      scale_to == DType::kFloat || (scale_to == DType::kE8M0 && rule.pow2 != 0),
      "[", ctx.Where(), "] expected scale_to of 1, or of 24 with pow2, got ",
      ctx.Int("scale_to", 0));
  BlockGrid grid = GridOf(ctx, x, "block_rows", "block_columns");
  void* q = ctx.HasOut(0) ? ctx.Out(0, to, x.shape()).raw() : nullptr;
  BlockQuantizer quantizer(grid, rule, to, x, static_cast<uint8_t*>(q));
  quantizer.Run();
  if (ctx.HasOut(1)) SetScales(ctx, grid, scale_to, quantizer.factors());
  SetResult(ctx, 2, Tensor::Scalar(quantizer.amax()));
}

}  // namespace

void RegisterQuantizeBlock(KernelRegistry& r) {
  // No uses_amax: the maxima of the blocks give it at no cost.
  r.Add("QuantizeBlock", QuantizeBlock, {.narrow_in = {0}}, kDomain);
}

}  // namespace onnx_fp8
