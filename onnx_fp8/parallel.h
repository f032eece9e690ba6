// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>

namespace onnx_fp8 {

// Threads that a call below is cut for and may use, the caller among them; as
// many as AvailableCpus() until it is set. n >= 1. Not inside a call below.
void SetNumThreads(int n);
int NumThreads();

// Calls fn(begin, end) for disjoint ranges that cover [0, n), each a multiple
// of `grain` elements long (but the last); what is no longer than `grain` runs
// on the caller. The ranges depend on n, grain and NumThreads() only, so
// results are repeatable; which thread computes which, and in which order,
// does not: a thread takes the next range when it is free, so one that the
// system holds back costs its share and no more. Of the exceptions that fn
// throws that of the first range is rethrown on the caller, after all others
// have run. Inside another ParallelFor it runs on the caller. Threads may call
// it at the same time. After fork() the child has threads of its own.
void ParallelFor(int64_t n, int64_t grain,
                 const std::function<void(int64_t, int64_t)>& fn);

// Calls fn(i) for each i of [0, n), each in turn as a range of its own: for
// few, long tasks. Else as ParallelFor.
void ParallelTasks(int64_t n, const std::function<void(int64_t)>& fn);

// What ParallelFor runs on.
class ParallelBackend {
 public:
  virtual ~ParallelBackend() = default;

  // Calls task(i) once for each i of [0, n), on at most `threads` threads, and
  // returns when all calls have ended. `task` does not throw and does not call
  // Run. Threads may call Run at the same time.
  virtual void Run(int64_t n, int threads,
                   const std::function<void(int64_t)>& task) = 0;
};

// From now on calls run on a host's pool, with nullptr on the library's own
// again (thread_pool.h). The host tells its number of threads by
// SetNumThreads. Not while a call runs. Does not own `backend`.
void SetParallelBackend(ParallelBackend* backend);

}  // namespace onnx_fp8
