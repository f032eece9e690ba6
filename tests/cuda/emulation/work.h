// SPDX-License-Identifier: Apache-2.0
//
// Work waits in streams until something waits for it. Then it runs in an order
// that the schedule draws, among streams that no event orders.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/cuda/emulation/pinned.h"

namespace onnx_fp8::emulation {

struct Work {
  std::string what;  // "a copy of 12 bytes"
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  std::function<void()> run = nullptr;  // more than once in a graph
  std::vector<PinnedRange> pinned = {};
  uint64_t time = 1;  // that it takes, in pieces of work
  // What CUPTI would record of it.
  uint32_t stream = 0, launch = 0;
  bool recorded = false;  // in a graph
};

// Work in a stream.
struct Op {
  uint64_t id = 0;
  Work work;
  int waits = 0;  // number of works awaited
  bool done = false, needed = false;
  uint64_t time = 0;  // at which it ran, in pieces of work
  // Nanoseconds of a device that runs all streams at once.
  int64_t begin = 0, end = 0;
  std::vector<std::shared_ptr<Op>> after, next;
};
using OpRef = std::shared_ptr<Op>;

struct Capture;

}  // namespace onnx_fp8::emulation

// The toolkit's opaque types.
struct CUstream_st {
  bool blocking = true;  // waits for the legacy stream, which waits for it
  int priority = 0;
  uint32_t number = 0;
  onnx_fp8::emulation::OpRef tail;
  // While it captures: where it ends in the graph.
  std::shared_ptr<onnx_fp8::emulation::Capture> capture;
  std::vector<size_t> tails;
};

struct CUevent_st {
  bool timed = true;
  onnx_fp8::emulation::OpRef op;
  std::shared_ptr<onnx_fp8::emulation::Capture> capture;
  std::vector<size_t> tails;
};

namespace onnx_fp8::emulation {

// ---- streams ----------------------------------------------------------------

// The default stream.
cudaStream_t LegacyStream();
cudaStream_t NewStream(bool blocking, int priority);
// Its work still runs. REQUIRES: it is one of NewStream's.
void DeleteStream(cudaStream_t stream);
// The stream that the handle means; null if there is none.
cudaStream_t StreamOf(cudaStream_t handle);

// What the next piece of work of a stream waits for.
std::vector<OpRef> Before(cudaStream_t stream);

// ---- work -------------------------------------------------------------------

// Into the stream, or into the graph that it captures.
cudaError_t Enqueue(cudaStream_t handle, Work work);
// Work that starts when all of `after` is done; null stands for nothing.
OpRef AddOp(Work work, const std::vector<OpRef>& after);

// The number of the next launch.
uint32_t NextLaunch();

// Runs these, all that they wait for and, by the schedule, other work.
cudaError_t Drain(const std::vector<OpRef>& last);
cudaError_t DrainAll();
// Whether it is done. If not, some work before it is then done, so that a
// caller that asks again and again sees an end.
bool Poll(const OpRef& op);

}  // namespace onnx_fp8::emulation
