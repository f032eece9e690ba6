// SPDX-License-Identifier: Apache-2.0
#include "base/parallel.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <latch>
#include <mutex>
#include <new>
#include <numeric>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

using Range = std::pair<int64_t, int64_t>;

class Parallel : public testing::Test {
 protected:
  ~Parallel() override { SetNumThreads(before_); }

 private:
  int before_ = NumThreads();
};

// The ranges with which ParallelFor calls its function, in order.
std::vector<Range> RangesOf(int64_t n, int64_t grain) {
  std::mutex mutex;
  std::vector<Range> ranges;
  ParallelFor(n, grain, [&](int64_t begin, int64_t end) {
    std::lock_guard<std::mutex> lock(mutex);
    ranges.emplace_back(begin, end);
  });
  std::sort(ranges.begin(), ranges.end());
  return ranges;
}

TEST_F(Parallel, RangesCoverAllAndBeginAtMultiplesOfTheGrain) {
  for (int threads : {1, 2, 3, 7, 70}) {
    SetNumThreads(threads);
    for (auto [n, grain] : std::vector<Range>{
             {1, 1}, {7, 1}, {7, 0}, {1000, 7}, {1000, 999}, {1000, 1000}}) {
      std::vector<Range> ranges = RangesOf(n, grain);
      int64_t at = 0;
      for (auto [begin, end] : ranges) {
        EXPECT_EQ(begin, at);
        EXPECT_LT(begin, end);
        EXPECT_EQ(begin % std::max<int64_t>(grain, 1), 0);
        at = end;
      }
      EXPECT_EQ(at, n);
      EXPECT_EQ(ranges, RangesOf(n, grain));
    }
    EXPECT_TRUE(RangesOf(0, 1).empty());
  }
}

TEST_F(Parallel, EachTaskRunsOnce) {
  for (int threads : {1, 2, 70}) {
    SetNumThreads(threads);
    for (int64_t n : {0, 1, 2, 65, 1000, 1'100'000}) {
      std::vector<std::atomic<int>> runs(static_cast<size_t>(n));
      ParallelTasks(n, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
      EXPECT_TRUE(std::all_of(runs.begin(), runs.end(),
                              [](const auto& count) { return count == 1; }));
    }
  }
}

TEST_F(Parallel, TheErrorOfTheFirstRangeIsRethrownAfterAllHaveRun) {
  for (int threads : {2, 3}) {
    SetNumThreads(threads);
    for (int repeat = 0; repeat < 200; ++repeat) {
      std::atomic<int> ended = 0;
      EXPECT_EQ(ErrorOf([&] {
                  ParallelTasks(40, [&](int64_t i) {
                    ++ended;
                    Check(i % 19 != 17, "task ", i);
                  });
                }),
                "task 17");
      EXPECT_EQ(ended, 40);
    }
  }
}

// No matter which thread runs the task: the caller, or one of the pool.
TEST_F(Parallel, NoMemoryInATaskIsTheCallersError) {
  SetNumThreads(2);
  auto caller = std::this_thread::get_id();
  for (bool on_caller : {true, false}) {
    std::latch both(2);
    std::atomic<int> thrown = 0;
    EXPECT_THROW(ParallelTasks(2,
                               [&](int64_t) {
                                 both.arrive_and_wait();
                                 bool here =
                                     std::this_thread::get_id() == caller;
                                 if (here != on_caller) return;
                                 ++thrown;
                                 throw std::bad_alloc();
                               }),
                 std::bad_alloc);
    EXPECT_EQ(thrown, 1);
  }
  EXPECT_GT(RangesOf(100, 1).size(), 1u);  // the pool goes on
}

TEST_F(Parallel, NestedCallsRunOnTheirCaller) {
  SetNumThreads(3);
  ParallelTasks(20, [](int64_t) {
    auto self = std::this_thread::get_id();
    ParallelFor(100, 1, [&](int64_t begin, int64_t end) {
      EXPECT_EQ(begin, 0);
      EXPECT_EQ(end, 100);
      EXPECT_EQ(std::this_thread::get_id(), self);
    });
    ParallelTasks(
        5, [&](int64_t) { EXPECT_EQ(std::this_thread::get_id(), self); });
  });
  EXPECT_GT(RangesOf(100, 1).size(), 1u);  // no longer nested
}

TEST_F(Parallel, ARangeOnTheCallerMayCallAgain) {
  SetNumThreads(2);
  size_t inner = 0;
  ParallelFor(1, 1, [&](int64_t, int64_t) { inner = RangesOf(100, 1).size(); });
  EXPECT_GT(inner, 1u);
}

// If each thread had a fixed part, this would not end.
TEST_F(Parallel, OthersDoWhatAHeldThreadDoesNotGetTo) {
  for (int threads : {2, 5}) {
    SetNumThreads(threads);
    std::atomic<bool> held = false;
    std::latch others(39);
    ParallelTasks(40, [&](int64_t) {
      if (held.exchange(true)) {
        others.count_down();
      } else {
        others.wait();
      }
    });
  }
}

TEST_F(Parallel, ACallerWaitsForTasksThatHaveBegunOnly) {
  SetNumThreads(3);
  std::latch begun(3), release(1);
  std::thread other([&] {
    ParallelTasks(3, [&](int64_t) {
      begun.count_down();
      release.wait();
    });
  });
  begun.wait();  // all workers are held
  auto self = std::this_thread::get_id();
  std::atomic<int> here = 0;
  ParallelTasks(100,
                [&](int64_t) { here += std::this_thread::get_id() == self; });
  EXPECT_EQ(here, 100);
  release.count_down();
  other.join();
}

TEST_F(Parallel, ManyCallersAtOnce) {
  SetNumThreads(3);
  constexpr int kCallers = 20;  // more than the pool keeps apart
  std::latch all(kCallers);
  std::vector<int64_t> sums(kCallers);
  std::vector<std::thread> callers;
  for (int64_t& sum : sums) {
    callers.emplace_back([&] {
      std::atomic<bool> first = true;
      ParallelTasks(4, [&](int64_t) {
        if (first.exchange(false)) all.arrive_and_wait();
      });
      for (int64_t repeat = 0; repeat < 100; ++repeat) {
        std::atomic<int64_t> part = 0;
        ParallelFor(1000, 3, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) part += i;
        });
        sum += part;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(sums, std::vector<int64_t>(kCallers, 49'950'000));
}

int64_t ThreadsOfProcess() {
  std::filesystem::directory_iterator tasks("/proc/self/task"), end;
  return std::distance(tasks, end);
}

TEST_F(Parallel, ThreadsStartWhenNeededAndEndWhenNotWanted) {
  SetNumThreads(1);
  int64_t alone = ThreadsOfProcess();
  SetNumThreads(4);
  EXPECT_EQ(ThreadsOfProcess(), alone);
  for (int threads : {4, 2, 3, 1}) {
    SetNumThreads(threads);
    RangesOf(100, 1);
    // A thread that has ended is listed a little longer.
    while (ThreadsOfProcess() > alone + threads - 1) std::this_thread::yield();
    EXPECT_EQ(ThreadsOfProcess(), alone + threads - 1);
  }
}

// Two tasks that wait for each other: this ends only if the process has a
// second thread of its own.
void NeedTwoThreads() {
  std::latch both(2);
  ParallelTasks(2, [&](int64_t) { both.arrive_and_wait(); });
}

template <typename Fn>
int ExitCodeOfChild(Fn fn) {
  pid_t child = fork();
  if (child == 0) {
    fn();
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(Parallel, ChildProcessesHaveThreadsOfTheirOwn) {
  SetNumThreads(2);
  NeedTwoThreads();
  EXPECT_EQ(ExitCodeOfChild([] {
              NeedTwoThreads();
              EXPECT_EQ(ExitCodeOfChild(NeedTwoThreads), 0);
              SetNumThreads(4);
              EXPECT_EQ(RangesOf(100, 100).size(), 1u);
              NeedTwoThreads();
            }),
            0);
  NeedTwoThreads();
}

TEST_F(Parallel, AForkMayFallIntoAnotherThreadsCall) {
  SetNumThreads(2);
  std::latch begun(2), release(1);
  std::thread other([&] {
    ParallelTasks(2, [&](int64_t) {
      begun.count_down();
      release.wait();
    });
  });
  begun.wait();
  EXPECT_EQ(ExitCodeOfChild(NeedTwoThreads), 0);
  release.count_down();
  other.join();
}

// Bytes.
rlim_t AddressesOfProcess() {
  rlim_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<rlim_t>(getpagesize());
}

// The limit leaves no room for the stack of a thread.
TEST_F(Parallel, MakesDoWithoutThreadsWhereMemoryIsShort) {
  EXPECT_EQ(ExitCodeOfChild([] {
              // glibc keeps the stacks of ended threads, which are smaller.
              pthread_attr_t large;
              pthread_attr_init(&large);
              pthread_attr_setstacksize(&large, size_t{1} << 30);
              EXPECT_EQ(pthread_setattr_default_np(&large), 0);
              SetNumThreads(4);
              rlim_t used = AddressesOfProcess() + (rlim_t{1} << 20);
              struct rlimit limit = {used, used};
              EXPECT_EQ(setrlimit(RLIMIT_AS, &limit), 0);
              for (int repeat = 0; repeat < 2; ++repeat) {
                EXPECT_EQ(RangesOf(1000, 7).back().second, 1000);
              }
              EXPECT_EQ(ThreadsOfProcess(), 1);
            }),
            0);
}

TEST_F(Parallel, MakesDoWithTheThreadsThatThereAre) {
  EXPECT_EQ(ExitCodeOfChild([] {
              pthread_attr_t no_room;
              pthread_attr_init(&no_room);
              pthread_attr_setstacksize(&no_room, size_t{1} << 50);
              EXPECT_EQ(pthread_setattr_default_np(&no_room), 0);
              SetNumThreads(4);
              for (int repeat = 0; repeat < 2; ++repeat) {
                EXPECT_EQ(RangesOf(1000, 7).back().second, 1000);
              }
            }),
            0);
}

// One thread, which runs tasks in a random order.
class Shuffled : public ParallelBackend {
 public:
  void Run(int64_t n, int threads,
           const std::function<void(int64_t)>& task) override {
    EXPECT_EQ(threads, NumThreads());
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), random_);
    for (int64_t i : order) task(i);
    tasks += n;
  }

  int64_t tasks = 0;

 private:
  std::mt19937 random_{1};
};

TEST_F(Parallel, AHostsPoolTakesThePlaceOfOurs) {
  SetNumThreads(3);
  std::vector<Range> ours = RangesOf(1000, 7);
  Shuffled host;
  SetParallelBackend(&host);
  EXPECT_EQ(RangesOf(1000, 7), ours);
  EXPECT_EQ(host.tasks, std::ssize(ours));
  auto fail = [](int64_t i) { Check(i < 5, "task ", i); };
  EXPECT_EQ(ErrorOf([&] { ParallelTasks(30, fail); }), "task 5");
  EXPECT_EQ(host.tasks, std::ssize(ours) + 30);
  ParallelTasks(2, [](int64_t) { EXPECT_EQ(RangesOf(9, 1).size(), 1u); });
  EXPECT_EQ(host.tasks, std::ssize(ours) + 32);
  SetParallelBackend(nullptr);
  EXPECT_EQ(RangesOf(1000, 7), ours);
  EXPECT_EQ(host.tasks, std::ssize(ours) + 32);
}

// A pool that counts its calls and computes on the caller.
class CountingPool : public ParallelBackend {
 public:
  void Run(int64_t n, int threads,
           const std::function<void(int64_t)>& task) override {
    ++calls;
    most_threads = threads;
    for (int64_t i = 0; i < n; ++i) task(i);
  }
  int calls = 0, most_threads = 0;
};

TEST_F(Parallel, AScopeIsForItsThreadAndEnds) {
  SetNumThreads(2);
  CountingPool outer, inner;
  {
    ParallelScope first(&outer, 0);
    EXPECT_EQ(NumThreads(), 2);
    RangesOf(10, 1);
    {
      ParallelScope second(&inner, 5);
      EXPECT_EQ(NumThreads(), 5);
      EXPECT_EQ(RangesOf(100, 1).size(), 20u);
      ParallelScope same(nullptr, 0);
      RangesOf(10, 1);
      std::thread other([&] {
        EXPECT_EQ(NumThreads(), 2);
        RangesOf(10, 1);
      });
      other.join();
    }
    RangesOf(10, 1);
  }
  EXPECT_EQ(NumThreads(), 2);
  RangesOf(10, 1);
  EXPECT_EQ(outer.calls, 2);
  EXPECT_EQ(outer.most_threads, 2);
  EXPECT_EQ(inner.calls, 2);
  EXPECT_EQ(inner.most_threads, 5);
}

}  // namespace
}  // namespace onnx_fp8
