// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/parallel.h"

namespace onnx_fp8 {

// The library's own threads. Tasks are handed out one by one, to the caller
// too. The caller waits only for tasks that have been begun: a thread that
// sleeps, or has lost its core with no task in hand, delays nobody. Threads
// with nothing to do spin for some microseconds and then sleep; they do not
// spin if there are fewer CPUs than threads.
class ThreadPool : public ParallelBackend {
 public:
  ThreadPool();
  ~ThreadPool() override;  // not while Run runs

  // As declared there. A thread begins with its own part of the tasks, the same
  // in each call, because its caches hold that data; then it takes tasks of
  // other parts. Starts threads that are missing; if the system refuses them,
  // it uses the threads that there are.
  void Run(int64_t n, int threads,
           const std::function<void(int64_t)>& task) override;

  // Ends threads beyond the first `threads`; the caller is one of these.
  void Trim(int threads);

 private:
  using Task = std::function<void(int64_t)>;
  static constexpr int kJobs = 8;    // calls of Run at a time
  static constexpr int kParts = 64;  // more threads share parts

  // One call of Run. left[p] is the number of tasks of part p that no thread
  // has taken. Threads take the first tasks of a part first. A thread takes a
  // task by decreasing left[p]. From then on it may read the other fields,
  // because they stay as they are until `pending` is 0.
  struct alignas(64) Job {
    std::atomic<bool> taken = false;
    std::atomic<bool> caller_sleeps = false;
    std::atomic<uint32_t> pending = 0;  // tasks that have not ended
    std::atomic<int> parts = 0;
    std::atomic<int64_t> n = 0;
    std::atomic<const Task*> task = nullptr;
    std::array<std::atomic<uint32_t>, kParts> left = {};
  };

  Job* FreeJob();
  void Start(int threads);
  void Work(int id);
  void RunTasks(Job& job, int id);
  void AwaitEnd(Job& job);
  bool SpinWhile(const std::atomic<uint32_t>& word, uint32_t value) const;

  const int cpus_;
  std::array<Job, kJobs> jobs_;
  alignas(64) std::atomic<uint32_t> calls_ = 0;  // number of calls of Run;
                                                 // workers watch it
  std::atomic<int> sleepers_ = 0;
  std::atomic<int> threads_ = 1;  // the caller and workers_
  std::mutex mutex_;              // guards the fields below
  std::vector<std::thread> workers_;
  bool refused_ = false;  // the system gives us no more threads
};

}  // namespace onnx_fp8
