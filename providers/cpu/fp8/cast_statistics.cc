// SPDX-License-Identifier: Apache-2.0
//
// CastStatistics and ProductStatistics. Counts equal the bodies'; sums of
// doubles are taken in another order, which does not depend on the number of
// threads.
#include "onnx_fp8/cast_statistics.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "providers/cpu/fp8/dequantize_block.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/tasks.h"
#include "providers/kernel.h"
#include "providers/ops/block_grid.h"

namespace onnx_fp8 {
namespace {

struct CastLimits {
  float q_max, beyond;  // beyond: limit / q_max
};

// n elements, with their codes as floats and their scales.
void AddElements(const CastLimits& format, const float* x, const float* code,
                 const float* scale, int64_t n, CastStatistics* sums) {
  for (int64_t i = 0; i < n; ++i) {
    const float size = std::fabs(x[i]);
    if (!(size < std::numeric_limits<float>::infinity())) {
      sums->not_finite += 1;
      continue;
    }
    const float real = code[i] * scale[i];
    const double error = static_cast<double>(x[i]) - static_cast<double>(real);
    sums->noise += error * error;
    if (size == 0) {
      sums->zeros += 1;
      continue;
    }
    const bool largest = std::fabs(code[i]) == format.q_max;
    sums->flushed += code[i] == 0;
    sums->saturated += largest && size > std::fabs(real) * format.beyond;
    sums->signal += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    sums->amax = std::max<double>(sums->amax, size);
    sums->least = std::min<double>(sums->least, size);
  }
}

void AddLine(double signal, double noise, CastStatistics* sums) {
  if (signal == 0) return;
  sums->lines += 1;
  sums->line_noise += std::min(noise / signal, 1.0);
}

// Adds the sums of a whole row.
void AddRow(const CastStatistics& row, CastStatistics* sums) {
  sums->Add(row);
  AddLine(row.signal, row.noise, sums);
}

void WriteStatistics(KernelContext& ctx, const CastStatistics& all) {
  const double numbers[] = {all.elements,  all.zeros,      all.flushed,
                            all.saturated, all.not_finite, all.signal,
                            all.noise,     all.lines,      all.line_noise,
                            all.amax,      all.least,      all.scale};
  static_assert(std::size(numbers) == CastStatistics::kNumbers);
  Tensor y = ctx.Out(0, DType::kDouble, {CastStatistics::kNumbers});
  std::ranges::copy(numbers, y.data<double>());
}

void MeasureCast(KernelContext& ctx) {
  const Tensor &x = ctx.In(0), &q = ctx.In(1);
  Check(x.dtype() == DType::kFloat && IsFloat8(q.dtype()) &&
            x.shape() == q.shape(),
        "[", ctx.Where(), "] expected floats and as many codes, got ",
        Name(x.dtype()), ToString(x.shape()), " and ", Name(q.dtype()),
        ToString(q.shape()));
  const BlockGrid grid = GridOf(ctx, q, "block_rows", "block_columns");
  const std::vector<float> scales = ScalesIn(ctx, 2, grid);
  const float q_max = ctx.Float("q_max", 0);
  const CastLimits format = {q_max, ctx.Float("limit", 0) / q_max};
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  const auto decode =
      q.dtype() == DType::kE4M3 ? kernels.decode_e4m3 : kernels.decode_e5m2;
  const auto* codes = static_cast<const uint8_t*>(q.raw());
  const int64_t n = grid.columns, rows = RowsPerTask(n);
  std::vector<CastStatistics> parts(
      static_cast<size_t>((grid.rows + rows - 1) / rows));
  ParallelTasks(std::ssize(parts), [&](int64_t task) {
    std::vector<float> spread(static_cast<size_t>(n)), code = spread;
    CastStatistics& part = parts[static_cast<size_t>(task)];
    const int64_t end = std::min(grid.rows, (task + 1) * rows);
    for (int64_t i = task * rows; i < end; ++i) {
      if (i == task * rows || i % grid.block_rows == 0) {
        SpreadAcross(grid, scales.data() + i / grid.block_rows * grid.across,
                     spread.data());
      }
      decode(codes + i * n, code.data(), n);
      CastStatistics row;
      AddElements(format, x.data<float>() + i * n, code.data(), spread.data(),
                  n, &row);
      AddRow(row, &part);
    }
  });
  CastStatistics all;
  for (const CastStatistics& part : parts) all.Add(part);
  all.elements = static_cast<double>(x.size());
  for (float scale : scales) all.scale = std::max<double>(all.scale, scale);
  WriteStatistics(ctx, all);
}

// The sample of a product has few rows, so one thread measures it.
void MeasureProduct(KernelContext& ctx) {
  const Tensor &x = ctx.In(0), &y = ctx.In(1);
  Check(x.dtype() == DType::kFloat && y.dtype() == DType::kFloat &&
            x.shape() == y.shape() && x.rank() > 0,
        "[", ctx.Where(), "] expected floats of one shape with rows, got ",
        Name(x.dtype()), ToString(x.shape()), " and ", Name(y.dtype()),
        ToString(y.shape()));
  constexpr CastLimits kUnlimited = {std::numeric_limits<float>::infinity(), 1};
  constexpr float kOne = 1;
  CastStatistics all;
  const int64_t n = x.shape().back();
  std::vector<CastStatistics> columns(static_cast<size_t>(n));
  for (int64_t begin = 0; begin < x.size(); begin += n) {
    CastStatistics row;
    for (int64_t j = 0; j < n; ++j) {
      CastStatistics one;
      const float number = y.data<float>()[begin + j];
      if (std::isfinite(number)) {
        AddElements(kUnlimited, x.data<float>() + begin + j, &number, &kOne, 1,
                    &one);
      } else {
        one.not_finite += 1;
      }
      row.Add(one);
      columns[static_cast<size_t>(j)].Add(one);
    }
    AddRow(row, &all);
  }
  for (const CastStatistics& column : columns) {
    AddLine(column.signal, column.noise, &all);
  }
  all.elements = static_cast<double>(x.size());
  WriteStatistics(ctx, all);
}

}  // namespace

void RegisterCastStatistics(KernelRegistry& r) {
  r.Add("CastStatistics", MeasureCast, {}, kDomain);
  r.Add("ProductStatistics", MeasureProduct, {}, kDomain);
}

}  // namespace onnx_fp8
