// SPDX-License-Identifier: Apache-2.0
//
// Collectives of the lanes of a warp, and what a thread does alone.
#include <algorithm>
#include <bit>

#include "tests/cuda/emulation/block_state.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/shared_memory.h"

namespace onnx_fp8::emulation {
namespace {

uint32_t Reduced(Collective kind, uint32_t a, uint32_t b) {
  auto signed_a = static_cast<int32_t>(a), signed_b = static_cast<int32_t>(b);
  switch (kind) {
    case Collective::kAdd:
      return a + b;
    case Collective::kMin:
      return std::min(a, b);
    case Collective::kMax:
      return std::max(a, b);
    case Collective::kSignedMin:
      return static_cast<uint32_t>(std::min(signed_a, signed_b));
    case Collective::kSignedMax:
      return static_cast<uint32_t>(std::max(signed_a, signed_b));
    case Collective::kAnd:
      return a & b;
    case Collective::kXor:
      return a ^ b;
    default:
      return a | b;
  }
}

template <typename F>
void ForEachLane(unsigned mask, F f) {
  for (; mask != 0; mask &= mask - 1) f(std::countr_zero(mask));
}

// What a lane gives that takes no part is undefined: all bits are set here.
void CompleteShuffle(Warp& warp, unsigned mask) {
  ForEachLane(mask, [&](int lane) {
    unsigned from = warp.from[lane] % 32;
    warp.result[lane] = mask >> from & 1 ? warp.value[from] : ~uint64_t{0};
  });
}

void CompleteReduction(Warp& warp, unsigned mask, Collective kind) {
  int first = std::countr_zero(mask);
  auto of = [&](int lane) {
    auto value = static_cast<uint32_t>(warp.value[lane]);
    return kind == Collective::kBallot ? value << lane : value;
  };
  uint32_t all = of(first);
  ForEachLane(mask & (mask - 1),
              [&](int lane) { all = Reduced(kind, all, of(lane)); });
  ForEachLane(mask, [&](int lane) { warp.result[lane] = all; });
}

// The meeting of these lanes, which the lane joins.
Meeting& Join(Warp& warp, unsigned lane, unsigned mask, Collective kind) {
  if (!(mask >> lane & 1)) {
    Report(WhereInKernel(), ": lane ", lane, " is not in the mask ",
           HexOf(mask), " that it gives");
    Fault(cudaErrorLaunchFailure);
  }
  mask &= warp.lanes;
  auto at = std::ranges::find(warp.meetings, mask, &Meeting::mask);
  if (at == warp.meetings.end()) {
    at = warp.meetings.insert(at, {mask, 0, kind});
  } else if (at->kind != kind) {
    Report(WhereInKernel(),
           ": lanes of one warp meet in different collectives");
    Fault(cudaErrorLaunchFailure);
  }
  at->arrived |= 1u << lane;
  return *at;
}

// The last lane has come. The others get ready.
void Complete(Warp& warp, Meeting& meeting, DeviceThread& me) {
  Meeting all = meeting;
  meeting = warp.meetings.back();
  warp.meetings.pop_back();
  if (all.kind == Collective::kSync) {
    ++warp.epoch;
  } else if (all.kind == Collective::kShuffle) {
    CompleteShuffle(warp, all.mask);
  } else {
    CompleteReduction(warp, all.mask, all.kind);
  }
  DeviceThread* first = &me - Lane();
  ForEachLane(all.mask & ~(1u << Lane()),
              [&](int lane) { MakeReady(first[lane]); });
}

}  // namespace

unsigned Lane() { return block.current->id % 32; }

uint64_t OfWarp(Collective kind, unsigned mask, uint64_t value, unsigned from) {
  DeviceThread& me = *block.current;
  Warp& warp = block.warp_of(me);
  unsigned lane = Lane();
  Meeting& meeting = Join(warp, lane, mask, kind);
  warp.value[lane] = value;
  warp.from[lane] = from;
  if (meeting.arrived == meeting.mask) {
    Complete(warp, meeting, me);
  } else {
    WaitForOthers(me);
  }
  return warp.result[lane];
}

void* DynamicShared() { return DynamicBegin(); }

}  // namespace onnx_fp8::emulation

void __trap() {
  using namespace onnx_fp8::emulation;
  Report(WhereInKernel(), " traps");
  Fault(cudaErrorLaunchFailure);
}
