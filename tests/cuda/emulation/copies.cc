// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/copies.h"

#include <cstring>
#include <memory>
#include <utility>

#include "tests/cuda/emulation/captures.h"
#include "tests/cuda/emulation/faults.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {
namespace {

bool OnDevice(const void* p) {
  const Allocation* a = Find(p);
  return a && a->device;
}

bool IsPinned(const void* p) {
  const Allocation* a = Find(p);
  return a && !a->device;
}

// Whether the sides are what the kind says.
bool KindFits(const CopyRequest& copy) {
  cudaMemcpyKind kind = copy.kind;
  if (kind == cudaMemcpyDefault) return true;
  bool to = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  bool from =
      kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  return OnDevice(copy.to) == to && OnDevice(copy.from) == from;
}

// A side may be coming memory of the stream (cudaMallocAsync): the copy itself
// then looks again.
bool SideFits(const void* p, size_t bytes, const char* side) {
  const Allocation* a = Find(p);
  if (!a || Reachable(p, bytes)) return true;
  bool coming = a->state == Allocation::State::kComing && p >= a->begin &&
                AddressOf(p) - AddressOf(a->begin) + bytes <= a->bytes;
  if (coming) return true;
  Report("a copy of ", bytes, " bytes ", side, " ", Describe(p));
  return false;
}

cudaError_t CheckCopy(const CopyRequest& copy) {
  bool pitches = copy.height == 1 ||
                 (copy.to_pitch >= copy.width && copy.from_pitch >= copy.width);
  if (!pitches) {
    Report("a copy of rows that are longer than their pitch");
    return cudaErrorInvalidPitchValue;
  }
  if (!KindFits(copy)) {
    Report("a copy of kind ", static_cast<int>(copy.kind), " from ",
           Describe(copy.from), " to ", Describe(copy.to));
    return cudaErrorInvalidMemcpyDirection;
  }
  bool fits = SideFits(copy.to, copy.to_bytes(), "to") &&
              SideFits(copy.from, copy.from_bytes(), "from");
  return fits ? cudaSuccess : cudaErrorInvalidValue;
}

bool IsPageable(const void* p) { return !OnDevice(p) && !IsPinned(p); }

void ReportPageable(const CopyRequest& copy) {
  if (!copy.async) return;
  if (IsPageable(copy.to)) {
    Report("an asynchronous copy to pageable memory waits until it is done");
  }
  if (IsPageable(copy.from)) {
    Report("an asynchronous copy from pageable memory copies it first");
  }
}

void CopyRows(const CopyRequest& copy) {
  auto to = static_cast<char*>(copy.to);
  auto from = static_cast<const char*>(copy.from);
  for (size_t row = 0; row < copy.height; ++row) {
    std::memmove(to + row * copy.to_pitch, from + row * copy.from_pitch,
                 copy.width);
  }
}

// When its turn comes: a stream or a graph may have kept it until its memory
// was freed.
void NeedLive(const void* p, size_t bytes, const char* what) {
  if (!Find(p) || Reachable(p, bytes)) return;
  Report(what, " of ", bytes, " bytes at ", Describe(p));
  Fault(cudaErrorIllegalAddress);
}

Work WorkOf(CopyRequest copy) {
  Work work = {.what = Concat("a copy of ", copy.width * copy.height, " bytes"),
               .type = cudaGraphNodeTypeMemcpy};
  if (IsPinned(copy.to)) {
    work.pinned.push_back({copy.to, copy.to_bytes(), true});
  }
  if (IsPinned(copy.from)) {
    work.pinned.push_back({copy.from, copy.from_bytes(), false});
  }
  std::shared_ptr<char[]> staged;
  if (IsPageable(copy.from)) {
    staged.reset(new char[copy.from_bytes()]);
    std::memcpy(staged.get(), copy.from, copy.from_bytes());
    copy.from = staged.get();
  }
  work.run = [copy, staged] {
    NeedLive(copy.to, copy.to_bytes(), "a copy");
    NeedLive(copy.from, copy.from_bytes(), "a copy");
    CopyRows(copy);
  };
  return work;
}

}  // namespace

cudaError_t EnqueueCopy(const CopyRequest& copy, cudaStream_t handle) {
  if (copy.width == 0 || copy.height == 0) return cudaSuccess;
  cudaStream_t stream = StreamOf(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  cudaError_t error = CheckCopy(copy);
  if (error != cudaSuccess) return error;
  ReportPageable(copy);
  error = Enqueue(handle, WorkOf(copy));
  bool waits = !copy.async || IsPageable(copy.to);
  if (error != cudaSuccess || !waits) return error;
  error = ForbidOnCapturing(stream, "a copy that waits");
  return error == cudaSuccess ? Drain({stream->tail}) : error;
}

cudaError_t EnqueueFill(void* to, int value, size_t bytes,
                        cudaStream_t stream) {
  if (bytes == 0) return cudaSuccess;
  if (!SideFits(to, bytes, "as a fill to") || IsPageable(to)) {
    if (IsPageable(to)) Report("a fill of ", Describe(to));
    return cudaErrorInvalidValue;
  }
  Work work = {.what = Concat("a fill of ", bytes, " bytes"),
               .type = cudaGraphNodeTypeMemset,
               .run = [=] {
                 NeedLive(to, bytes, "a fill");
                 std::memset(to, value, bytes);
               }};
  if (IsPinned(to)) work.pinned.push_back({to, bytes, true});
  return Enqueue(stream, std::move(work));
}

}  // namespace onnx_fp8::emulation
