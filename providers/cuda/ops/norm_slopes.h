// SPDX-License-Identifier: Apache-2.0
//
// The operands of a norm's gradient, and what the elements of a row have in
// common. norm_grad.cu has the formulas.
#pragma once

#include <cstdint>

#include "providers/cuda/core/rows.h"
#include "providers/cuda/ops/norm.h"

namespace onnx_fp8::cuda {

struct NormGrad {
  FloatsIn more;  // what other readers of x send back; null if there are none
  FloatsIn dy, x, scale;
  FloatsIn means, inverses;  // one number per row; null for RMSNorm
  Result dx;
  float* partial;  // of dscale, then of dbias: [parts][n] each
  NormSizes sizes;
  int64_t parts;
  float epsilon;
  bool centered;  // not for RMSNorm
};

// dx = inverse (dh - dh_mean - h along)
struct Slopes {
  float mean, inverse, dh_mean, along;
};

namespace {

__device__ float Normal(const Slopes& s, float x) {
  return (x - s.mean) * s.inverse;
}

__device__ float Gradient(const Slopes& s, float dh, float h) {
  return fmaf(-h, s.along, dh - s.dh_mean) * s.inverse;
}

// The two sums over a row, of which SlopesFrom makes its slopes: Σ dh and
// Σ dh h, or Σ x² and Σ dh x for RMSNorm. One element adds to them.
template <bool kCentered>
__device__ void AddElement(const Slopes& s, float dh, float x, float& first,
                           float& second) {
  first = kCentered ? first + dh : fmaf(x, x, first);
  second = fmaf(dh, kCentered ? Normal(s, x) : x, second);
}

// The row's own numbers, before the sums are known.
template <bool kCentered>
__device__ Slopes KnownSlopes(const NormGrad& p, int64_t row) {
  Slopes s = {};
  if constexpr (kCentered) {
    s.mean = Load(p.means, row);
    s.inverse = Load(p.inverses, row);
  }
  return s;
}

template <bool kCentered>
__device__ Slopes SlopesFrom(const NormGrad& p, Slopes s, float first,
                             float second) {
  auto n = static_cast<float>(p.sizes.n);
  if constexpr (kCentered) {
    s.dh_mean = first / n;
    s.along = second / n;
  } else {
    s.inverse = rsqrtf(first / n + p.epsilon);
    s.along = second / n * s.inverse;
  }
  return s;
}

// dh = dy scale for vector i; scale comes from the cache.
__device__ void Scale(const NormGrad& p, const RowPart& columns, int i,
                      const float (&dy)[kPerThread], float (&dh)[kPerThread]) {
  LoadVector({p.scale.data, Storage::kFloat}, columns, i, 0, dh);
  for (int k = 0; k < kPerThread; ++k) dh[k] *= dy[k];
}

}  // namespace

}  // namespace onnx_fp8::cuda
