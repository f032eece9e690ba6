// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <exception>

#include "base/available_cpus.h"

namespace onnx_fp8 {
namespace {

using Clock = std::chrono::steady_clock;

// Usually longer than the time between two calls within a step, and several
// times shorter than the cost of a wake-up.
constexpr auto kSpin = std::chrono::microseconds(50);

// Not std::atomic::wait: it yields before it sleeps, and Linux charges a share
// of the CPU for each yield.
void SleepWhile(const std::atomic<uint32_t>& word, uint32_t value) {
  // Linux reads the word again. Only this read is ordered after the caller's
  // writes before it on every CPU.
  if (word.load(std::memory_order_seq_cst) != value) return;
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, value, nullptr, nullptr, 0);
}

void Wake(const std::atomic<uint32_t>& word, int count) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

// Tells the CPU that this thread waits in a loop.
void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("isb");  // YIELD takes no time on most of these CPUs
#endif
}

}  // namespace

ThreadPool::ThreadPool() : cpus_(AvailableCpus()) {}

ThreadPool::~ThreadPool() { Trim(1); }

// Whether the word changed before the time was up. The clock is read because a
// pause takes 4 to 140 cycles, depending on the CPU.
bool ThreadPool::SpinWhile(const std::atomic<uint32_t>& word,
                           uint32_t value) const {
  if (threads_.load(std::memory_order_relaxed) > cpus_) return false;
  auto end = Clock::now() + kSpin;
  do {
    for (int i = 0; i < 8; ++i) {
      if (word.load(std::memory_order_acquire) != value) return true;
      Pause();
    }
  } while (Clock::now() < end);
  return false;
}

void ThreadPool::Start(int threads) {
  if (threads_.load(std::memory_order_relaxed) >= threads) return;
  std::lock_guard<std::mutex> lock(mutex_);
  while (threads_ < threads && !refused_) {
    int id = threads_++;  // first: a thread with a higher number ends
    try {
      workers_.emplace_back([this, id] { Work(id); });
    } catch (const std::exception&) {  // no thread, or no memory for one
      --threads_;
      refused_ = true;
    }
  }
}

void ThreadPool::Trim(int threads) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (threads_ <= threads) return;
  threads_ = threads;
  ++calls_;
  Wake(calls_, INT_MAX);
  while (std::ssize(workers_) >= threads) {
    workers_.back().join();
    workers_.pop_back();
  }
}

ThreadPool::Job* ThreadPool::FreeJob() {
  for (Job& job : jobs_) {
    if (!job.taken.load(std::memory_order_relaxed) &&
        !job.taken.exchange(true, std::memory_order_acquire)) {
      return &job;
    }
  }
  return nullptr;
}

void ThreadPool::Run(int64_t n, int threads, const Task& task) {
  Start(threads);
  Job* free = FreeJob();
  if (!free) {
    for (int64_t i = 0; i < n; ++i) task(i);
    return;
  }
  Job& job = *free;
  int parts = std::min(threads, kParts);
  job.n.store(n, std::memory_order_relaxed);
  job.task.store(&task, std::memory_order_relaxed);
  job.parts.store(parts, std::memory_order_relaxed);
  job.pending.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
  for (int p = 0; p < parts; ++p) {
    job.left[p].store(
        static_cast<uint32_t>(n * (p + 1) / parts - n * p / parts),
        std::memory_order_release);
  }
  // Either a worker sees the new number before it sleeps, or it is counted here
  // as a sleeper: both sides write first, then read.
  calls_.fetch_add(1, std::memory_order_seq_cst);
  if (sleepers_.load(std::memory_order_seq_cst) > 0) {
    Wake(calls_, static_cast<int>(std::min<int64_t>(n, threads)) - 1);
  }
  RunTasks(job, 0);
  AwaitEnd(job);
  job.taken.store(false, std::memory_order_release);
}

void ThreadPool::RunTasks(Job& job, int id) {
  uint32_t ended = 0;
  int parts = job.parts.load(std::memory_order_relaxed);
  for (int i = 0; i < parts; ++i) {
    int p = (id + i) % parts;
    uint32_t left = job.left[p].load(std::memory_order_relaxed);
    while (left > 0) {
      if (!job.left[p].compare_exchange_weak(left, left - 1,
                                             std::memory_order_acq_rel)) {
        continue;
      }
      // Now the job exists for certain. It may be another job than above.
      int64_t n = job.n.load(std::memory_order_relaxed);
      int64_t end = n * (p + 1) / job.parts.load(std::memory_order_relaxed);
      (*job.task.load(std::memory_order_relaxed))(end - left);
      ++ended;
      left = job.left[p].load(std::memory_order_relaxed);
    }
  }
  // By now the job may be another one, except for the tasks that are counted
  // here.
  if (ended > 0 &&
      job.pending.fetch_sub(ended, std::memory_order_seq_cst) == ended &&
      job.caller_sleeps.load(std::memory_order_seq_cst)) {
    Wake(job.pending, 1);
  }
}

void ThreadPool::AwaitEnd(Job& job) {
  uint32_t pending;
  while ((pending = job.pending.load(std::memory_order_acquire)) > 0) {
    if (SpinWhile(job.pending, pending)) continue;
    job.caller_sleeps.store(true, std::memory_order_seq_cst);
    SleepWhile(job.pending, pending);
    job.caller_sleeps.store(false, std::memory_order_relaxed);
  }
}

void ThreadPool::Work(int id) {
  for (;;) {
    uint32_t calls = calls_.load(std::memory_order_acquire);
    if (id >= threads_) return;
    for (Job& job : jobs_) RunTasks(job, id);
    if (SpinWhile(calls_, calls)) continue;
    sleepers_.fetch_add(1, std::memory_order_seq_cst);
    SleepWhile(calls_, calls);
    sleepers_.fetch_sub(1, std::memory_order_relaxed);
  }
}

}  // namespace onnx_fp8
