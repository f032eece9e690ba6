// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/work.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/captures.h"
#include "tests/cuda/emulation/cupti_api.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/settings.h"

namespace onnx_fp8::emulation {
namespace {

struct Queue {
  CUstream_st legacy;
  std::set<cudaStream_t> streams;
  std::vector<OpRef> runnable;
  std::map<uint64_t, OpRef> pending;
  uint64_t next_id = 0, time = 0;
  uint32_t launches = 0, named = 0;  // calls that start work; streams
  size_t needed = 0;                 // pending ops that somebody waits for
};

Queue& TheQueue() {
  static auto& queue = *new Queue;
  return queue;
}

void DropAll() {
  Queue& queue = TheQueue();
  for (auto& [id, op] : queue.pending) {
    op->done = true;
    op->after.clear();
    op->next.clear();
  }
  queue.pending.clear();
  queue.runnable.clear();
  queue.needed = 0;
  LetAll();
}

void Finish(Op& op) {
  Queue& queue = TheQueue();
  op.done = true;
  op.time = queue.time += op.work.time;
  if (op.needed) --queue.needed;
  for (const PinnedRange& range : op.work.pinned) Let(range);
  for (const OpRef& next : op.next) {
    if (--next->waits == 0) queue.runnable.push_back(next);
  }
  op.next.clear();
  op.after.clear();
  op.work.run = nullptr;
  queue.pending.erase(op.id);
}

// Work of the device takes 10 microseconds, and begins one after the work that
// it waits for.
void SetTimes(Op& op) {
  for (const OpRef& other : op.after) op.begin = std::max(op.begin, other->end);
  op.end = op.begin;
  if (op.work.type == cudaGraphNodeTypeEmpty) return;
  op.begin += 1000;
  op.end = op.begin + 10000 * static_cast<int64_t>(op.work.time);
}

void Execute(OpRef op) {
  SetTimes(*op);
  try {
    if (op->work.run) {
      op->work.run();
      if (FindOverrun(op->work.what)) SetStickyError(cudaErrorIllegalAddress);
    }
  } catch (const Faulted&) {
  }
  if (StickyError() != cudaSuccess) return DropAll();
  NoteActivity(*op);
  Finish(*op);
}

void MarkNeeded(std::vector<OpRef> todo) {
  while (!todo.empty()) {
    OpRef op = std::move(todo.back());
    todo.pop_back();
    if (!op || op->done || op->needed) continue;
    op->needed = true;
    ++TheQueue().needed;
    todo.insert(todo.end(), op->after.begin(), op->after.end());
  }
}

// The oldest that somebody waits for.
size_t FirstNeeded(const std::vector<OpRef>& runnable) {
  size_t best = runnable.size();
  for (size_t i = 0; i < runnable.size(); ++i) {
    if (!runnable[i]->needed) continue;
    if (best == runnable.size() || runnable[i]->id < runnable[best]->id) {
      best = i;
    }
  }
  return best;
}

size_t DrawOne(const std::vector<OpRef>& runnable) {
  for (;;) {
    size_t i = Random(static_cast<uint32_t>(runnable.size()));
    // What nobody waits for may run as well.
    if (runnable[i]->needed || Random(2) == 0) return i;
  }
}

// The oldest of the stream that was made first, or last.
size_t OfExtremeStream(const std::vector<OpRef>& runnable, bool last) {
  const auto place = [&](const OpRef& op) {
    const int64_t stream = op->work.stream;
    return std::pair(last ? -stream : stream, op->id);
  };
  const auto best = std::ranges::min_element(runnable, {}, place);
  return static_cast<size_t>(best - runnable.begin());
}

size_t ChooseOne(const std::vector<OpRef>& runnable) {
  switch (Schedule()) {
    case 0:
      return FirstNeeded(runnable);
    case kFirstStreamFirst:
    case kLastStreamFirst:
      return OfExtremeStream(runnable, Schedule() == kLastStreamFirst);
    default:
      return DrawOne(runnable);
  }
}

OpRef TakeRunnable() {
  auto& runnable = TheQueue().runnable;
  size_t i = ChooseOne(runnable);
  OpRef op = runnable[i];
  runnable.erase(runnable.begin() + static_cast<std::ptrdiff_t>(i));
  return op;
}

}  // namespace

cudaStream_t LegacyStream() { return &TheQueue().legacy; }

cudaStream_t NewStream(bool blocking, int priority) {
  auto stream = new CUstream_st{.blocking = blocking, .priority = priority};
  stream->number = ++TheQueue().named;
  TheQueue().streams.insert(stream);
  return stream;
}

void DeleteStream(cudaStream_t stream) {
  TheQueue().streams.erase(stream);
  delete stream;
}

cudaStream_t StreamOf(cudaStream_t handle) {
  bool legacy = !handle || handle == cudaStreamLegacy;
  if (legacy || handle == LegacyStream()) return LegacyStream();
  return TheQueue().streams.contains(handle) ? handle : nullptr;
}

std::vector<OpRef> Before(cudaStream_t stream) {
  std::vector<OpRef> after = {stream->tail};
  if (stream == LegacyStream()) {
    for (cudaStream_t other : TheQueue().streams) {
      if (other->blocking) after.push_back(other->tail);
    }
  } else if (stream->blocking) {
    after.push_back(LegacyStream()->tail);
  }
  return after;
}

cudaError_t Enqueue(cudaStream_t handle, Work work) {
  if (StickyError() != cudaSuccess) return StickyError();
  cudaStream_t stream = StreamOf(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  work.stream = stream->number;
  if (stream->capture) return AddToCapture(stream, std::move(work));
  work.launch = NextLaunch();
  if (stream == LegacyStream()) {
    cudaError_t error = ForbidInCapture("work on the default stream",
                                        cudaErrorStreamCaptureImplicit);
    if (error != cudaSuccess) return error;
  }
  stream->tail = AddOp(std::move(work), Before(stream));
  return cudaSuccess;
}

OpRef AddOp(Work work, const std::vector<OpRef>& after) {
  Queue& queue = TheQueue();
  auto op = std::make_shared<Op>();
  op->id = queue.next_id++;
  op->work = std::move(work);
  for (const OpRef& other : after) {
    if (other) op->begin = std::max(op->begin, other->end);
    if (!other || other->done) continue;
    ++op->waits;
    op->after.push_back(other);
    other->next.push_back(op);
  }
  for (const PinnedRange& range : op->work.pinned) Hold(range, op->work.what);
  queue.pending[op->id] = op;
  if (op->waits == 0) queue.runnable.push_back(op);
  return op;
}

uint32_t NextLaunch() { return ++TheQueue().launches; }

cudaError_t Drain(const std::vector<OpRef>& last) {
  MarkNeeded(last);
  if (TheQueue().needed == 0) return StickyError();
  OpenPinned();
  {
    OpenMemory open;
    while (TheQueue().needed > 0) Execute(TakeRunnable());
  }
  ClosePinned();
  return StickyError();
}

cudaError_t DrainAll() {
  std::vector<OpRef> all;
  for (auto& [id, op] : TheQueue().pending) all.push_back(op);
  return Drain(all);
}

bool Poll(const OpRef& op) {
  if (!op || op->done) return true;
  auto before = std::ranges::find(op->after, false, &Op::done);
  Drain({before == op->after.end() ? op : *before});
  return false;
}

}  // namespace onnx_fp8::emulation
