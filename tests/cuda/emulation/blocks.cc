// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/blocks.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <numeric>
#include <utility>

#include "tests/cuda/emulation/block_state.h"
#include "tests/cuda/emulation/counts.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/settings.h"
#include "tests/cuda/emulation/shared_memory.h"
#include "tests/cuda/emulation/symbols.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace onnx_fp8::emulation {

BlockState block;

namespace {

void RunThreads();

constexpr uint32_t kMaxThreads = 1024;

// Who runs next.
struct Scheduler {
  bool draws = false;  // orders
  bool eager = false;  // a warp runs as far ahead of the others as it can
  std::vector<uint32_t> order;       // in which threads begin
  DeviceThread* ready[kMaxThreads];  // a ring
  uint32_t first_ready = 0, end_ready = 0;
  DeviceThread* handed = nullptr;  // to the stack that is switched to
  Stack* entering = nullptr;       // a stack
  // One that is about to begin, and one for each thread.
  Stacks stacks{kMaxThreads + 1, RunThreads};
  Context host;
};

Scheduler& TheScheduler() {
  static auto& scheduler = *new Scheduler;
  return scheduler;
}

DeviceThread*& Ready(uint32_t i) {
  return TheScheduler().ready[i % kMaxThreads];
}

// A ready thread, or one that has not begun; null if all wait or have ended.
DeviceThread* NextThread() {
  Scheduler& s = TheScheduler();
  uint32_t ready = s.end_ready - s.first_ready;
  uint32_t fresh = block.threads_in_block - block.begun;
  if (ready + fresh == 0) return nullptr;
  if (fresh > 0 && (ready == 0 || !s.draws || Random(2) == 0)) {
    return &block.threads[s.order[block.begun++]];
  }
  if (s.eager) return Ready(--s.end_ready);
  if (s.draws) {
    std::swap(Ready(s.first_ready), Ready(s.first_ready + Random(ready)));
  }
  return Ready(s.first_ready++);
}

Stack* EnterStack() {
  Scheduler& s = TheScheduler();
  return s.entering = s.stacks.Take();
}

std::string Triple(const uint3& i) {
  return Concat("(", i.x, ",", i.y, ",", i.z, ")");
}

[[noreturn]] void ReportDeadlock() {
  int in_warps = 0;
  unsigned arrived = 0, mask = 0;
  for (const Warp& warp : block.warps) {
    for (const Meeting& meeting : warp.meetings) {
      in_warps += std::popcount(meeting.arrived);
      arrived = meeting.arrived;
      mask = meeting.mask;
    }
  }
  Report("deadlock in block ", Triple(blockIdx), " of ",
         SourceOf(block.grid->kernel), ": ", block.at_barrier.size(),
         " threads wait at a barrier, ", in_warps,
         " in a collective of a warp (lanes ", HexOf(arrived), " of mask ",
         HexOf(mask), "), ", block.ended, " have ended");
  Fault(cudaErrorLaunchTimeout);
}

void OpenBarrier() {
  ++block.epoch;
  block.votes[block.epoch % 2] = 0;  // of the barrier to come
  for (DeviceThread* thread : block.at_barrier) MakeReady(*thread);
  block.at_barrier.clear();
}

void RunThread(DeviceThread& thread) {
  thread.begun = true;
  thread.groups = 0;
  block.current = &thread;
  threadIdx = thread.index;
  block.grid->thread(block.grid->call);
  FinishCopies(thread, SIZE_MAX);
  ++block.ended;
  uint32_t left = block.threads_in_block - block.ended;
  if (left > 0 && block.at_barrier.size() == left) OpenBarrier();
}

// What each stack runs: threads from begin to end. A thread that waits keeps
// its stack.
void RunThreads() {
  Scheduler& s = TheScheduler();
  Stack* self = s.entering;
  ArriveOnNewStack();
  for (;;) {
    DeviceThread* next = std::exchange(s.handed, nullptr);
    if (!next) next = NextThread();
    if (next && !next->begun) {
      RunThread(*next);
      continue;
    }
    if (!next && block.ended < block.threads_in_block) ReportDeadlock();
    s.stacks.GiveBack(self);
    SwitchContext(self->context, next ? next->context : s.host);
  }
}

void RunBlock() {
  block.begun = block.ended = block.epoch = 0;
  block.votes[0] = block.votes[1] = 0;
  ++block.run;
  for (DeviceThread& thread : block.threads) thread.begun = false;
  for (Warp& warp : block.warps) {
    warp.epoch = 0;
    warp.meetings.clear();
  }
  Scheduler& s = TheScheduler();
  s.handed = nullptr;
  SwitchContext(s.host, EnterStack()->context);
}

void SetUpThreads(const Grid& g) {
  Scheduler& s = TheScheduler();
  uint32_t n = g.block.x * g.block.y * g.block.z;
  block.threads_in_block = n;
  block.threads.resize(n);
  s.order.resize(n);
  std::iota(s.order.begin(), s.order.end(), 0u);
  block.warps.assign((n + 31) / 32, Warp());
  for (uint32_t i = 0; i < n; ++i) {
    block.threads[i].id = i;
    block.threads[i].index = {i % g.block.x, i / g.block.x % g.block.y,
                              i / g.block.x / g.block.y};
    block.warps[i / 32].lanes |= 1u << i % 32;
    if (s.draws) std::swap(s.order[i], s.order[Random(i + 1)]);
  }
}

void SetUp(const Grid& g) {
  Scheduler& s = TheScheduler();
  s.draws = Schedule() != 0;
  s.eager = Schedule() % 2 == 1;
  block.grid = &g;
  block.host_thread = pthread_self();
  block.failed = false;
  ++block.launch;
  blockDim = g.block;
  gridDim = g.grid;
  SetUpThreads(g);
  ResetShared(g.shared);
  CountLaunch(g.kernel);
}

void TearDown() {
  if (block.failed) {
    Scheduler& s = TheScheduler();
    s.first_ready = s.end_ready = 0;
    block.at_barrier.clear();
    for (DeviceThread& thread : block.threads) thread.copies.clear();
    s.stacks.StartOver();
  }
  block.current = nullptr;
  block.grid = nullptr;
}

// Calls f for each index of a block until it fails. Any step that is prime to
// their number visits all.
template <typename F>
void ForEachBlock(const dim3& grid, F f) {
  uint64_t n = uint64_t{grid.x} * grid.y * grid.z, step = 1, at = 0;
  if (Schedule() != 0) {
    constexpr uint64_t kMost = std::numeric_limits<uint32_t>::max();
    auto below = static_cast<uint32_t>(std::min(n, kMost));
    step = Random(below);
    at = Random(below);
    while (std::gcd(step, n) != 1) ++step;
  }
  for (uint64_t i = 0; i < n && !block.failed; ++i, at = (at + step) % n) {
    f(uint3{static_cast<unsigned>(at % grid.x),
            static_cast<unsigned>(at / grid.x % grid.y),
            static_cast<unsigned>(at / grid.x / grid.y)});
  }
}

// A kernel reads host memory without an error where both are one process.
void CheckPointers(const Grid& grid) {
  for (const void* p : grid.pointers) {
    if (!p || Find(p)) continue;
    Report("an argument of ", SourceOf(grid.kernel), " points to ",
           Describe(p));
    Fault(cudaErrorIllegalAddress);
  }
}

}  // namespace

void RunGrid(const Grid& grid) {
  CheckPointers(grid);
  SetUp(grid);
  ForEachBlock(grid.grid, [](uint3 index) {
    blockIdx = index;
    RunBlock();
  });
  TearDown();
}

bool InKernel() {
  return block.current && pthread_equal(block.host_thread, pthread_self());
}

void AbandonKernel() {
  block.failed = true;
  static Context nowhere;
  SwitchContext(nowhere, TheScheduler().host);
  __builtin_unreachable();
}

std::string WhereInKernel() {
  return Concat("block ", Triple(blockIdx), " thread ", Triple(threadIdx),
                " of ", FunctionName(block.grid->kernel));
}

bool InStackGuard(const void* p) { return TheScheduler().stacks.InGuard(p); }

bool OnDeviceStack(const void* p) { return TheScheduler().stacks.Hold(p); }

void MakeReady(DeviceThread& thread) {
  Ready(TheScheduler().end_ready++) = &thread;
}

void WaitForOthers(DeviceThread& me) {
  DeviceThread* next = NextThread();
  if (!next) ReportDeadlock();
  if (next->begun) {
    SwitchContext(me.context, next->context);
  } else {
    TheScheduler().handed = next;
    SwitchContext(me.context, EnterStack()->context);
  }
  block.current = &me;
  threadIdx = me.index;
}

}  // namespace onnx_fp8::emulation

void __syncthreads() {
  using namespace onnx_fp8::emulation;
  DeviceThread& me = *block.current;
  if (block.at_barrier.size() + 1 < block.threads_in_block - block.ended) {
    block.at_barrier.push_back(&me);
    WaitForOthers(me);
  } else {
    OpenBarrier();
  }
}

int __syncthreads_count(int predicate) {
  using namespace onnx_fp8::emulation;
  uint32_t& votes = block.votes[block.epoch % 2];
  votes += predicate != 0;
  __syncthreads();
  return static_cast<int>(votes);
}

int __syncthreads_or(int predicate) {
  return __syncthreads_count(predicate) != 0;
}

int __syncthreads_and(int predicate) {
  return __syncthreads_count(!predicate) == 0;
}
