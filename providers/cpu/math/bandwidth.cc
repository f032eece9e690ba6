// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/math/bandwidth.h"

#include <algorithm>
#include <chrono>

#include "base/parallel.h"
#include "onnx_fp8/tensor.h"
#include "providers/cpu/math/on_isa.h"

namespace onnx_fp8 {

double PeakBandwidth() {
  constexpr int64_t kElements = int64_t{16} << 20;
  constexpr double kSeconds = 0.05;
  constexpr int kFewestRuns = 3;
  using Clock = std::chrono::steady_clock;
  Tensor arrays[3];
  for (Tensor& array : arrays) {
    array = Tensor::Allocate(DType::kFloat, {kElements});
  }
  float *a = arrays[0].data<float>(), *b = arrays[1].data<float>(),
        *c = arrays[2].data<float>();
  int64_t share = (kElements + NumThreads() - 1) / NumThreads();
  // Fresh pages are slow, and lie near the thread that first writes them.
  ParallelFor(kElements, share, [=](int64_t first, int64_t last) {
    for (float* array : {a, b, c}) std::fill(array + first, array + last, 1.0f);
  });
  double best = 0, spent = 0;
  for (int run = 0; run < kFewestRuns || spent < kSeconds; ++run) {
    auto begin = Clock::now();
    ParallelFor(kElements, share, [=](int64_t first, int64_t last) {
      OnBestIsa([=] {
#pragma GCC ivdep
        for (int64_t i = first; i < last; ++i) a[i] = b[i] + 3 * c[i];
      });
    });
    std::chrono::duration<double> took = Clock::now() - begin;
    double seconds = std::max(took.count(), 1e-9);
    best = std::max(best, 3.0 * sizeof(float) * kElements / seconds);
    spent += seconds;
  }
  return best;
}

}  // namespace onnx_fp8
