// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/hopper.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "providers/cpu/gemm/write_result.h"
#include "providers/cpu/math/float8_kernels.h"
#include "providers/cpu/math/on_isa.h"
#include "providers/ops/divide_up.h"

namespace onnx_fp8 {
namespace {

constexpr int64_t kColumns = 64;      // computed together
constexpr int64_t kInstruction = 32;  // products added at once
constexpr int64_t kPromotion = 128;   // products until the sum is promoted
constexpr int32_t kInfinity = 0x7F800000;
constexpr int32_t kKept = 13 << 23;  // bits below the leading one, as exponent
// Below the smallest product of two 8-bit floats, 2^-32.
constexpr int32_t kSmallest = (127 - 40) << 23;

int32_t PowerOf(float x) { return std::bit_cast<int32_t>(x) & kInfinity; }

float FloatOf(int32_t bits) { return std::bit_cast<float>(bits); }

// Adds Σ a[k] b[k · kColumns + j] over k < count to sum[j], as one instruction.
void Instruction(const float* a, const float* b, int64_t count, float* sum) {
  int32_t power[kColumns];
  float to_units[kColumns], units[kColumns];
  for (int64_t j = 0; j < kColumns; ++j) {
    power[j] = std::max(kSmallest, PowerOf(sum[j]));
  }
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t j = 0; j < kColumns; ++j) {
      power[j] = std::max(power[j], PowerOf(a[k] * b[k * kColumns + j]));
    }
  }
  for (int64_t j = 0; j < kColumns; ++j) {
    to_units[j] = FloatOf((254 << 23) - (power[j] - kKept));  // 2^(13 - E)
    units[j] = std::trunc(sum[j] * to_units[j]);
  }
  for (int64_t k = 0; k < count; ++k) {
    for (int64_t j = 0; j < kColumns; ++j) {
      units[j] += std::trunc(a[k] * b[k * kColumns + j] * to_units[j]);
    }
  }
  for (int64_t j = 0; j < kColumns; ++j) {
    float exact = units[j] * FloatOf(power[j] - kKept);
    // Keep 13 of a float's 23 bits below the leading one.
    sum[j] = FloatOf(std::bit_cast<int32_t>(exact) & ~0x3FF);
  }
}

// result[j] = Σ a[k] b[k · kColumns + j] over k < depth. With factors (groups,
// kColumns), one for every `group` of k, sums are multiplied when they are
// promoted.
void Row(const float* a, const float* b, int64_t depth, bool fast,
         const float* factors, int64_t group, float* result) {
  float sum[kColumns] = {};
  std::fill_n(result, kColumns, 0.0f);
  int64_t promotion = fast ? depth : kPromotion;
  if (factors) promotion = std::min(promotion, group);
  for (int64_t k = 0; k < depth; k += kInstruction) {
    Instruction(a + k, b + k * kColumns, std::min(kInstruction, depth - k),
                sum);
    int64_t end = k + kInstruction;
    if (end < depth && end % promotion != 0) continue;
    const float* by = factors ? factors + k / group * kColumns : nullptr;
    for (int64_t j = 0; j < kColumns; ++j) {
      result[j] += by ? sum[j] * by[j] : sum[j];
      sum[j] = 0;
    }
  }
}

// op(x) (rows, columns) as floats, rows one after the other.
std::vector<float> Decoded(const GemmOperand& x, int64_t rows,
                           int64_t columns) {
  if (x.transposed) std::swap(rows, columns);  // now as stored
  std::vector<float> stored(static_cast<size_t>(rows * columns));
  for (int64_t i = 0; i < rows; ++i) {
    DecodeTo(x.dtype, static_cast<const char*>(x.data) + i * x.ld,
             stored.data() + i * columns, columns);
  }
  if (!x.transposed) return stored;
  std::vector<float> turned(stored.size());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < columns; ++j) {
      turned[static_cast<size_t>(j * rows + i)] =
          stored[static_cast<size_t>(i * columns + j)];
    }
  }
  return turned;
}

}  // namespace

void HopperGemm(const GemmProblem& p) {
  std::vector<float> a = Decoded(p.a, p.m, p.k);
  std::vector<float> b = Decoded(p.b, p.k, p.n);
  auto bias = static_cast<const float*>(p.bias);
  auto c = static_cast<const float*>(p.c);
  // Rows and columns have one scale each, or one for every `group` of k.
  bool grouped = p.scale_depth > 0;
  int64_t group = grouped ? p.scale_depth : p.k;
  int64_t groups = p.row_scale ? DivideUp(p.k, group) : 0;
  ParallelTasks(DivideUp(p.n, kColumns), [&](int64_t task) {
    int64_t j = task * kColumns, n = std::min(kColumns, p.n - j);
    std::vector<float> panel(static_cast<size_t>(p.k * kColumns));
    for (int64_t k = 0; k < p.k; ++k) {
      std::copy_n(b.data() + k * p.n + j, n, panel.data() + k * kColumns);
    }
    std::vector<float> factors(static_cast<size_t>(groups * kColumns));
    float result[kColumns];
    for (int64_t i = 0; i < p.m; ++i) {
      for (int64_t g = 0; g < groups; ++g) {
        for (int64_t l = 0; l < n; ++l) {
          factors[static_cast<size_t>(g * kColumns + l)] =
              p.row_scale[g * p.m + i] * p.column_scale[g * p.n + j + l];
        }
      }
      const float *row = a.data() + i * p.k, *columns = panel.data();
      const float* by = grouped ? factors.data() : nullptr;
      float* to = result;
      OnBestIsa([=, depth = p.k, fast = p.fast_accum] {
        Row(row, columns, depth, fast, by, group, to);
      });
      const float* sum = c + i * p.ldc + j;
      for (int64_t l = 0; l < n; ++l) {
        float scale = grouped       ? 1.0f
                      : p.row_scale ? factors[static_cast<size_t>(l)]
                                    : p.scale;
        result[l] = p.accumulate ? sum[l] + result[l]
                                 : result[l] * scale + (bias ? bias[j + l] : 0);
      }
      WriteResult(p, i, j, result, n);
    }
  });
}

}  // namespace onnx_fp8
