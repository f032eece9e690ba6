// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "providers/cpu/math/lanes.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Mean of x[0 … n), and the sum of (x - mean)²; in double, for use inside
// OnBestIsa.
template <typename T>
double MeanOf(const T* x, int64_t n) {
  return LaneSum(n, [=](int64_t i) -> double { return x[i]; }) /
         static_cast<double>(n);
}

template <typename T>
double SquaredDeviation(const T* x, int64_t n, double mean) {
  return LaneSum(n, [=](int64_t i) {
    double d = x[i] - mean;
    return d * d;
  });
}

// The part of RegisterNorm for norms over axes that are not the last ones.
void RegisterChannelNorm(KernelRegistry& r);  // channel_norm.cc

}  // namespace onnx_fp8
