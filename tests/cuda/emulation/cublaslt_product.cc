// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/cublaslt_product.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "tests/cuda/emulation/cublaslt_numbers.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/settings.h"

namespace onnx_fp8::emulation {
namespace {

constexpr int64_t kLanes = 16, kTileRows = 2, kTileColumns = 4;
constexpr int64_t kScaleBlock = 128;
constexpr int64_t kMxBlock = 32;
typedef float Lanes __attribute__((vector_size(kLanes * sizeof(float))));

int64_t RoundUp(int64_t n, int64_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// ---- what is read -----------------------------------------------------------

void NeedReachable(const char* what, const void* p, size_t bytes) {
  if (Reachable(p, bytes)) return;
  Report("cublasLtMatmul: ", what, ", ", bytes, " bytes, is ", Describe(p));
  Fault(cudaErrorIllegalAddress);
}

// How many scales an operand of (rows, k) has.
int64_t ScalesOf(int mode, int64_t rows, int64_t k) {
  int64_t blocks = RoundUp(k, kScaleBlock) / kScaleBlock;
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      return rows;
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return blocks * RoundUp(rows, 4);
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return RoundUp(rows, kScaleBlock) / kScaleBlock * RoundUp(blocks, 4);
    default:
      return 1;
  }
}

// The scale of a row in a block of k. Scales of 1x128 have a column of (padded)
// rows for each block of k, scales of 128x128 a padded row of these blocks.
float ScaleAt(const float* scales, int mode, int64_t rows, int64_t k,
              int64_t row, int64_t block) {
  if (!scales) return 1.0f;
  int64_t blocks = RoundUp(k, kScaleBlock) / kScaleBlock;
  switch (mode) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F:
      return scales[row];
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return scales[block * RoundUp(rows, 4) + row];
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return scales[row / kScaleBlock * RoundUp(blocks, 4) + block];
    default:
      return *scales;
  }
}

// One byte for each 32 elements of a row, padded to tiles of 128 rows by 4
// bytes: 32 lines of 16 bytes, of rows i, i + 32, i + 64 and i + 96.
int64_t MxTilesAcross(int64_t k) { return RoundUp(k, 4 * kMxBlock) / 128; }

float MxScaleAt(const float* scales, int64_t k, int64_t row, int64_t block) {
  auto* bytes = reinterpret_cast<const uint8_t*>(scales);
  int64_t tile = row / 128 * MxTilesAcross(k) + block / 4;
  int64_t line = row % 32, quarter = row % 128 / 32;
  uint8_t exponent = bytes[tile * 512 + line * 16 + quarter * 4 + block % 4];
  return exponent == 255 ? std::nanf("") : std::ldexp(1.0f, exponent - 127);
}

void CheckScales(const char* what, const float* scales, int mode, int64_t rows,
                 int64_t k) {
  if (!scales) return;
  if (mode == kMx) {
    auto tiles = RoundUp(rows, 128) / 128 * MxTilesAcross(k);
    return NeedReachable(what, scales, static_cast<size_t>(tiles) * 512);
  }
  auto n = static_cast<size_t>(ScalesOf(mode, rows, k));
  NeedReachable(what, scales, n * sizeof(float));
}

void CheckOperands(const LtProblem& p, const LtOperands& o) {
  NeedReachable("A", o.a, p.a.bytes());
  NeedReachable("B", o.b, p.b.bytes());
  NeedReachable("C", o.c, p.c.bytes());
  NeedReachable("D", o.d, p.d.bytes());
  CheckScales("A's scale", p.a_scale, p.a_mode, p.m, p.k);
  CheckScales("B's scale", p.b_scale, p.b_mode, p.n, p.k);
  if (p.d_scale) NeedReachable("D's scale", p.d_scale, sizeof(float));
  if (p.amax) NeedReachable("D's amax", p.amax, sizeof(float));
  if (p.has_bias()) {
    int64_t n = p.m + (p.d.batch - 1) * p.bias_stride;
    NeedReachable("bias", p.bias,
                  static_cast<size_t>(n) * BytesOfType(p.bias_type));
  }
  if (o.alpha) NeedReachable("alpha", o.alpha, sizeof(float));
  if (o.beta) NeedReachable("beta", o.beta, sizeof(float));
  if (o.workspace_bytes > 0) {
    NeedReachable("workspace", o.workspace, o.workspace_bytes);
  }
}

// ---- sums -------------------------------------------------------------------

// op(x), one of a batch: `rows` rows of k floats, padded with zeros.
struct Rows {
  int64_t pitch;
  std::vector<float> data;

  const float* at(int64_t row, int64_t k) const {
    return &data[static_cast<size_t>(row * pitch + k)];
  }
};

// `k_first`: in memory, elements of one row follow each other.
Rows ReadRows(const void* p, const LtMatrix& x, int64_t offset, bool k_first,
              int64_t rows, int64_t k, bool tf32) {
  Rows out = {.pitch = RoundUp(k, kLanes), .data = {}};
  int64_t padded = RoundUp(rows, std::max(kTileRows, kTileColumns));
  out.data.assign(static_cast<size_t>(padded * out.pitch), 0.0f);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < k; ++j) {
      int64_t at = k_first ? i * x.ld + j : j * x.ld + i;
      float value = LoadFloat(p, x.type, offset + at);
      out.data[static_cast<size_t>(i * out.pitch + j)] =
          tf32 ? RoundToTf32(value) : value;
    }
  }
  return out;
}

using Tile = float[kTileRows][kTileColumns];

// sums[i][j] = the product of rows i of a and j of b, n floats from each. n is
// a multiple of kLanes.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3",
                             "default"))) void
Dots(const float* a, int64_t a_pitch, const float* b, int64_t b_pitch,
     int64_t n, Tile& sums) {
  Lanes sum[kTileRows][kTileColumns] = {};
  for (int64_t k = 0; k < n; k += kLanes) {
    Lanes x[kTileRows], y[kTileColumns];
    for (int i = 0; i < kTileRows; ++i) {
      std::memcpy(&x[i], a + i * a_pitch + k, sizeof(Lanes));
    }
    for (int j = 0; j < kTileColumns; ++j) {
      std::memcpy(&y[j], b + j * b_pitch + k, sizeof(Lanes));
    }
    for (int i = 0; i < kTileRows; ++i) {
      for (int j = 0; j < kTileColumns; ++j) sum[i][j] += x[i] * y[j];
    }
  }
  for (int i = 0; i < kTileRows; ++i) {
    for (int j = 0; j < kTileColumns; ++j) {
      sums[i][j] = 0;
      for (int l = 0; l < kLanes; ++l) sums[i][j] += sum[i][j][l];
    }
  }
}

// One product of a batch.
class Product {
 public:
  Product(const LtProblem& p, const LtOperands& o, int32_t index)
      : p_(p),
        o_(o),
        index_(index),
        a_(ReadRows(o.a, p.a, index * p.a.stride, p.transpose_a, p.m, p.k,
                    tf32())),
        b_(ReadRows(o.b, p.b, index * p.b.stride, !p.transpose_b, p.n, p.k,
                    tf32())) {}

  // Returns the largest |d|, before D's scale.
  float Run() {
    float amax = 0;
    for (int64_t i = 0; i < p_.m; i += kTileRows) {
      for (int64_t j = 0; j < p_.n; j += kTileColumns) {
        Tile sums = {};
        Sum(i, j, sums);
        amax = std::max(amax, StoreTile(i, j, sums));
      }
    }
    return amax;
  }

 private:
  bool tf32() const { return p_.compute == CUBLAS_COMPUTE_32F_FAST_TF32; }

  bool blocked() const {
    return p_.a_mode >= CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F || mx();
  }
  bool mx() const { return p_.a_mode == kMx; }

  // How much of k is summed at once: a block of scales, or what numerics draw.
  int64_t Depth() const {
    if (blocked()) return mx() ? kMxBlock : kScaleBlock;
    uint64_t order = Numerics() + o_.algorithm;
    if (order == 0) return a_.pitch;
    auto parts = static_cast<int64_t>(2 + order % 3);
    return std::max(RoundUp(a_.pitch / parts, kLanes), kLanes);
  }

  void Sum(int64_t i0, int64_t j0, Tile& sums) const {
    int64_t depth = Depth();
    for (int64_t k = 0; k < a_.pitch; k += depth) {
      Tile part;
      Dots(a_.at(i0, k), a_.pitch, b_.at(j0, k), b_.pitch,
           std::min(depth, a_.pitch - k), part);
      int64_t block = blocked() ? k / depth : 0;
      for (int64_t i = i0; i < std::min(i0 + kTileRows, p_.m); ++i) {
        for (int64_t j = j0; j < std::min(j0 + kTileColumns, p_.n); ++j) {
          sums[i - i0][j - j0] +=
              part[i - i0][j - j0] *
              (mx() ? MxScaleAt(p_.a_scale, p_.k, i, block) *
                          MxScaleAt(p_.b_scale, p_.k, j, block)
                    : ScaleAt(p_.a_scale, p_.a_mode, p_.m, p_.k, i, block) *
                          ScaleAt(p_.b_scale, p_.b_mode, p_.n, p_.k, j, block));
        }
      }
    }
  }

  float StoreTile(int64_t i0, int64_t j0, const Tile& sums) const {
    float amax = 0, d_scale = p_.d_scale ? *p_.d_scale : 1.0f;
    int64_t d_offset = index_ * p_.d.stride;
    for (int64_t i = i0; i < std::min(i0 + kTileRows, p_.m); ++i) {
      for (int64_t j = j0; j < std::min(j0 + kTileColumns, p_.n); ++j) {
        float x = ResultAt(i, j, sums[i - i0][j - j0]);
        amax = std::max(amax, std::fabs(x));
        StoreFloat(o_.d, p_.d.type, d_offset + j * p_.d.ld + i, x * d_scale);
      }
    }
    return amax;
  }

  float ResultAt(int64_t i, int64_t j, float sum) const {
    float alpha = o_.alpha ? *o_.alpha : o_.alpha_value;
    float beta = o_.beta ? *o_.beta : o_.beta_value;
    float x = alpha * sum;
    if (beta != 0) {  // else NaN in C has no effect
      x += beta *
           LoadFloat(o_.c, p_.c.type, index_ * p_.c.stride + j * p_.c.ld + i);
    }
    if (p_.has_bias()) {
      x += LoadFloat(p_.bias, p_.bias_type, index_ * p_.bias_stride + i);
    }
    return x;
  }

  const LtProblem& p_;
  const LtOperands& o_;
  int64_t index_;
  Rows a_, b_;
};

}  // namespace

void RunProduct(const LtProblem& p, const LtOperands& o) {
  CheckOperands(p, o);
  if (o.workspace_bytes > 0) std::memset(o.workspace, 0xFF, o.workspace_bytes);
  float amax = 0;
  for (int32_t i = 0; i < p.d.batch; ++i) {
    amax = std::max(amax, Product(p, o, i).Run());
  }
  if (p.amax) *p.amax = amax;
}

}  // namespace onnx_fp8::emulation
