// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace onnx_fp8 {

// The number of threads that the calls below use, the caller included. It is
// AvailableCpus() until it is set. n >= 1. Not inside a call below.
void SetNumThreads(int n);
int NumThreads();

// Calls fn(begin, end) for disjoint ranges that cover [0, n). Each range but
// the last is a multiple of `grain` elements long; an n up to `grain` runs on
// the caller. The ranges depend on n, grain and NumThreads() only, so results
// are repeatable. A thread takes the next range when it is free, so the thread
// and the order of a range vary, and a thread that the system holds back delays
// only its share. If fn throws, all other ranges still run; then the exception
// of the first range that threw is rethrown on the caller. Inside another
// ParallelFor all runs on the caller. Threads may call this at the same time.
// After fork() the child has threads of its own.
void ParallelFor(int64_t n, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& fn);

// Calls fn(i) for each i of [0, n), each as a range of its own: for few, long
// tasks. Otherwise like ParallelFor.
void ParallelTasks(int64_t n, const std::function<void(int64_t)>& fn);

// The threads on which ParallelFor runs.
class ParallelBackend {
 public:
  virtual ~ParallelBackend() = default;

  // Calls task(i) once for each i of [0, n), on at most `threads` threads, and
  // returns when all calls have ended. `task` does not throw and does not call
  // Run. Threads may call Run at the same time.
  virtual void Run(int64_t n, int threads,
                   const std::function<void(int64_t)>& task) = 0;
};

// From now on calls run on a host's pool; with nullptr, on the library's own
// pool again (thread_pool.h). The host sets its number of threads with
// SetNumThreads. Not while a call runs. Does not own `backend`.
void SetParallelBackend(ParallelBackend* backend);

// While one exists, calls from the thread that made it run on `backend` (null:
// as for other threads) and use `threads` threads (0: as other threads do), so
// that several hosts can lend their pools at the same time. The newest scope
// counts.
class ParallelScope {
 public:
  ParallelScope(ParallelBackend* backend, int threads);
  ~ParallelScope();
  ParallelScope(const ParallelScope&) = delete;
  ParallelScope& operator=(const ParallelScope&) = delete;

 private:
  ParallelBackend* const outer_backend_;
  const int outer_threads_;
};

}  // namespace onnx_fp8
