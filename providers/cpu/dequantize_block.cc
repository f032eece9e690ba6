// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/dequantize_block.h"

#include <algorithm>

#include "onnx_fp8/check.h"
#include "onnx_fp8/parallel.h"
#include "providers/cpu/float8_kernels.h"
#include "providers/cpu/on_isa.h"
#include "providers/cpu/register.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kTaskElements = 32768;  // some ten microseconds
constexpr int64_t kStrip = 1024;          // floats

void MultiplyBy(const float* s, float* x, int64_t n) {
  OnBestIsa([=] {
#pragma GCC ivdep
    for (int64_t j = 0; j < n; ++j) x[j] *= s[j];
  });
}

void DequantizeBlock(KernelContext& c) {
  const Tensor& q = c.In(0);
  Check(IsFloat8(q.dtype()), "[", c.Where(), "] expected an 8-bit float, got ",
        Name(q.dtype()));
  BlockGrid grid = GridOf(c, q, "block_rows", "block_columns");
  std::vector<float> scales = ScalesIn(c, 1, grid);
  DequantizeTo(q.dtype(), q.raw(), grid, scales,
               c.Out(0, DType::kFloat, q.shape()).data<float>());
}

}  // namespace

void DequantizeTo(DType dtype, const void* q, const BlockGrid& grid,
                  const std::vector<float>& scales, float* x) {
  const Float8Kernels& kernels = KernelsFor(ActiveIsa());
  auto decode =
      dtype == DType::kE4M3 ? kernels.decode_e4m3 : kernels.decode_e5m2;
  auto codes = static_cast<const uint8_t*>(q);
  int64_t grain = std::max<int64_t>(1, kTaskElements / (grid.columns + 1));
  ParallelFor(grid.rows, grain, [&](int64_t begin, int64_t end) {
    std::vector<float> spread(static_cast<size_t>(grid.columns));
    for (int64_t i = begin; i < end; ++i) {
      if (i == begin || i % grid.block_rows == 0) {
        SpreadAcross(grid, scales.data() + i / grid.block_rows * grid.across,
                     spread.data());
      }
      for (int64_t j = 0; j < grid.columns; j += kStrip) {
        int64_t n = std::min(kStrip, grid.columns - j);
        int64_t at = i * grid.columns + j;
        decode(codes + at, x + at, n);
        MultiplyBy(spread.data() + j, x + at, n);
      }
    }
  });
}

void RegisterDequantizeBlock(KernelRegistry& r) {
  r.Add("DequantizeBlock", DequantizeBlock, {}, kDomain);
}

}  // namespace onnx_fp8
