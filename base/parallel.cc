// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <limits>
#include <mutex>

#include "base/available_cpus.h"
#include "base/thread_pool.h"

namespace onnx_fp8 {
namespace {

// Several per thread, so that other threads can take ranges from a slow one.
// Not more, because each range costs a fraction of a microsecond.
constexpr int64_t kRangesPerThread = 4;
constexpr int64_t kMostRanges = int64_t{1} << 20;

std::atomic<int> num_threads = 0;  // 0: not known yet
std::atomic<ThreadPool*> own_pool = nullptr;
std::atomic<ParallelBackend*> host_pool = nullptr;
thread_local bool in_range = false;
// Set by the innermost ParallelScope.
thread_local ParallelBackend* scope_pool = nullptr;
thread_local int scope_threads = 0;

// Threads do not live on in a child process, so it starts with no pool. All
// that the parent's pool holds is lost there, held locks included.
ThreadPool& OwnPool() {
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { own_pool.store(nullptr); });
  static_cast<void>(registered);
  ThreadPool* pool = own_pool.load(std::memory_order_acquire);
  if (pool) return *pool;
  auto* made = new ThreadPool;  // lives as long as the process
  if (own_pool.compare_exchange_strong(pool, made)) return *made;
  delete made;
  return *pool;
}

class FirstError {
 public:
  // Keeps the current exception, which range i threw.
  void Keep(int64_t i) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (i >= range_) return;
    range_ = i;
    error_ = std::current_exception();
  }
  void Rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  std::mutex mutex_;
  int64_t range_ = std::numeric_limits<int64_t>::max();
  std::exception_ptr error_;
};

// Cuts `units` into `ranges` as equal as possible and calls fn with each.
void RunRanges(int64_t units, int64_t ranges,
               const std::function<void(int64_t, int64_t)>& fn) {
  FirstError error;
  ParallelBackend* host = scope_pool;
  if (!host) host = host_pool.load(std::memory_order_acquire);
  ParallelBackend& pool = host ? *host : OwnPool();
  pool.Run(ranges, NumThreads(), [&](int64_t i) {
    in_range = true;
    try {
      fn(units * i / ranges, units * (i + 1) / ranges);
    } catch (...) {
      error.Keep(i);
    }
    in_range = false;
  });
  error.Rethrow();
}

}  // namespace

void SetNumThreads(int n) {
  num_threads = std::max(n, 1);
  if (ThreadPool* pool = own_pool.load()) pool->Trim(num_threads);
}

int NumThreads() {
  if (scope_threads > 0) return scope_threads;
  int n = num_threads.load(std::memory_order_relaxed);
  if (n > 0) return n;
  // If two threads set it at the same time, one of them wins.
  num_threads.compare_exchange_strong(n, AvailableCpus());
  return num_threads;
}

void SetParallelBackend(ParallelBackend* backend) { host_pool = backend; }

ParallelScope::ParallelScope(ParallelBackend* backend, int threads)
    : outer_backend_(scope_pool), outer_threads_(scope_threads) {
  if (backend) scope_pool = backend;
  if (threads > 0) scope_threads = threads;
}

ParallelScope::~ParallelScope() {
  scope_pool = outer_backend_;
  scope_threads = outer_threads_;
}

void ParallelFor(int64_t n, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& fn) {
  if (n <= 0) return;
  grain = std::max<int64_t>(grain, 1);
  int64_t grains = (n - 1) / grain + 1;
  if (grains == 1 || NumThreads() == 1 || in_range) {
    fn(0, n);
    return;
  }
  int64_t ranges = std::min(grains, kRangesPerThread * NumThreads());
  RunRanges(grains, ranges, [&](int64_t begin, int64_t end) {
    fn(begin * grain, std::min(end * grain, n));
  });
}

void ParallelTasks(int64_t n, const std::function<void(int64_t)>& fn) {
  if (n <= 1 || NumThreads() == 1 || in_range) {
    for (int64_t i = 0; i < n; ++i) fn(i);
    return;
  }
  RunRanges(n, std::min(n, kMostRanges), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) fn(i);
  });
}

}  // namespace onnx_fp8
