// SPDX-License-Identifier: Apache-2.0
#include "tests/cuda/emulation/captures.h"

#include <algorithm>
#include <utility>

#include "tests/cuda/emulation/reports.h"

namespace onnx_fp8::emulation {
namespace {

std::set<std::shared_ptr<Capture>>& Captures() {
  static auto& captures = *new std::set<std::shared_ptr<Capture>>;
  return captures;
}

// Whether the capture forbids unsafe calls of this thread.
bool Forbids(const Capture& capture) {
  if (capture.mode == cudaStreamCaptureModeRelaxed) return false;
  return capture.mode == cudaStreamCaptureModeGlobal ||
         capture.thread == std::this_thread::get_id();
}

// Whether all nodes where other streams end lead to where the origin ends.
bool IsJoined(const Capture& capture) {
  std::set<size_t> seen;
  std::vector<size_t> todo = capture.origin->tails;
  while (!todo.empty()) {
    size_t node = todo.back();
    todo.pop_back();
    if (!seen.insert(node).second) continue;
    const auto& after = capture.graph->nodes[node].after;
    todo.insert(todo.end(), after.begin(), after.end());
  }
  auto joined = [&](cudaStream_t stream) {
    return std::ranges::all_of(
        stream->tails, [&](size_t node) { return seen.contains(node); });
  };
  return std::ranges::all_of(capture.streams, joined);
}

}  // namespace

cudaError_t ForbidInCapture(const char* call, cudaError_t error) {
  bool forbidden = false;
  for (const auto& capture : Captures()) {
    if (!Forbids(*capture)) continue;
    capture->invalid = forbidden = true;
  }
  if (!forbidden) return cudaSuccess;
  Report(call, " is not allowed while a stream captures");
  return error;
}

cudaError_t ForbidOnCapturing(cudaStream_t stream, const char* call) {
  if (!stream->capture) return cudaSuccess;
  stream->capture->invalid = true;
  Report(call, " is not allowed on a stream that captures");
  return cudaErrorStreamCaptureUnsupported;
}

cudaError_t AddToCapture(cudaStream_t stream, Work work) {
  if (stream->capture->invalid) return cudaErrorStreamCaptureInvalidated;
  auto& nodes = stream->capture->graph->nodes;
  nodes.push_back({std::move(work), stream->tails});
  stream->tails = {nodes.size() - 1};
  return cudaSuccess;
}

void BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  auto capture = std::make_shared<Capture>();
  capture->origin = stream;
  capture->mode = mode;
  capture->streams = {stream};
  stream->capture = capture;
  stream->tails.clear();
  Captures().insert(capture);
}

cudaError_t JoinCapture(cudaStream_t stream, const CUevent_st& event) {
  if (event.capture->ended) return cudaErrorCapturedEvent;
  if (event.capture->invalid) return cudaErrorStreamCaptureInvalidated;
  if (stream == LegacyStream()) return cudaErrorStreamCaptureImplicit;
  if (stream->capture && stream->capture != event.capture) {
    return cudaErrorStreamCaptureMerge;
  }
  stream->capture = event.capture;
  stream->capture->streams.insert(stream);
  for (size_t node : event.tails) {
    if (std::ranges::find(stream->tails, node) == stream->tails.end()) {
      stream->tails.push_back(node);
    }
  }
  return cudaSuccess;
}

cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  std::shared_ptr<Capture> capture = stream->capture;
  if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  cudaError_t error = cudaSuccess;
  if (capture->invalid) {
    error = cudaErrorStreamCaptureInvalidated;
  } else if (!IsJoined(*capture)) {
    Report("a capture ends, and its origin never waited for another stream");
    error = cudaErrorStreamCaptureUnjoined;
  }
  for (cudaStream_t other : capture->streams) {
    other->capture = nullptr;
    other->tails.clear();
  }
  Captures().erase(capture);
  if (error == cudaSuccess) *graph = capture->graph.release();
  capture->ended = true;
  return error;
}

void LaunchGraph(CUgraphExec_st& graph, cudaStream_t stream) {
  std::vector<OpRef> before = Before(stream), ops;
  before.push_back(graph.last);  // a graph does not run beside itself
  const uint32_t launch = NextLaunch();
  for (const CUgraphNode_st& node : graph.nodes) {
    std::vector<OpRef> after;
    for (size_t i : node.after) after.push_back(ops[i]);
    Work work = node.work;
    work.launch = launch;
    work.recorded = true;
    ops.push_back(AddOp(std::move(work), after.empty() ? before : after));
  }
  ops.insert(ops.end(), before.begin(), before.end());
  stream->tail = graph.last = AddOp({.what = "a graph"}, ops);
}

}  // namespace onnx_fp8::emulation
