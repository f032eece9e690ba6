// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/parallel.h"

#include <omp.h>

#include <algorithm>
#include <exception>

namespace onnx_fp8 {

void SetNumThreads(int n) { omp_set_num_threads(std::max(n, 1)); }

int NumThreads() { return omp_get_max_threads(); }

void ParallelFor(int64_t n, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& fn) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  int64_t grains = (n + grain - 1) / grain;
  int64_t threads = std::min<int64_t>(NumThreads(), grains);
  if (threads <= 1 || omp_in_parallel()) {
    fn(0, n);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for num_threads(static_cast <int>(threads)) \
    schedule(static, 1)
  for (int64_t t = 0; t < threads; ++t) {
    int64_t begin = grains * t / threads * grain;
    int64_t end = std::min(grains * (t + 1) / threads * grain, n);
    try {
      if (begin < end) fn(begin, end);
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

void ParallelTasks(int64_t n, const std::function<void(int64_t)>& fn) {
  int64_t threads = std::min<int64_t>(NumThreads(), n);
  if (threads <= 1 || omp_in_parallel()) {
    for (int64_t i = 0; i < n; ++i) fn(i);
    return;
  }
  std::exception_ptr error;
#pragma omp parallel for num_threads(static_cast <int>(threads)) \
    schedule(dynamic, 1)
  for (int64_t i = 0; i < n; ++i) {
    try {
      fn(i);
    } catch (...) {
#pragma omp critical
      if (!error) error = std::current_exception();
    }
  }
  if (error) std::rethrow_exception(error);
}

}  // namespace onnx_fp8
