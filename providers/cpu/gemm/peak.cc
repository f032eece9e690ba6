// SPDX-License-Identifier: Apache-2.0
#include "providers/cpu/gemm/peak.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/parallel.h"

namespace onnx_fp8 {

double PeakFlops(const GemmKernels& kernels) {
  constexpr int64_t kRounds = 200'000;
  constexpr double kSeconds = 0.1;
  using Clock = std::chrono::steady_clock;
  int64_t threads = NumThreads();
  std::vector<float> sums(static_cast<size_t>(threads * kRegisterSums));
  double best = 0, spent = 0;
  while (spent < kSeconds) {
    std::vector<int64_t> operations(static_cast<size_t>(threads));
    auto begin = Clock::now();
    ParallelFor(threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        operations[static_cast<size_t>(i)] =
            kernels.registers(kRounds, sums.data() + i * kRegisterSums);
      }
    });
    double seconds =
        std::chrono::duration<double>(Clock::now() - begin).count();
    int64_t all = 0;
    for (int64_t n : operations) all += n;
    best = std::max(best, static_cast<double>(all) / std::max(seconds, 1e-9));
    spent += seconds;
  }
  return best;
}

}  // namespace onnx_fp8
