// SPDX-License-Identifier: Apache-2.0
//
// Captures of streams, and the graphs that they make.
#pragma once

#include <cuda_runtime_api.h>

#include <deque>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "tests/cuda/emulation/work.h"

// The toolkit's opaque types.
struct CUgraphNode_st {
  onnx_fp8::emulation::Work work;
  std::vector<size_t> after;  // earlier nodes
};

struct CUgraph_st {
  std::deque<CUgraphNode_st> nodes;
};

struct CUgraphExec_st {
  std::deque<CUgraphNode_st> nodes;
  onnx_fp8::emulation::OpRef last;  // of its last launch
};

namespace onnx_fp8::emulation {

struct Capture {
  std::unique_ptr<CUgraph_st> graph = std::make_unique<CUgraph_st>();
  cudaStream_t origin = nullptr;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  std::thread::id thread = std::this_thread::get_id();
  bool invalid = false, ended = false;
  std::set<cudaStream_t> streams;
};

// Ends all captures that forbid the call, and returns the error if there are
// any.
cudaError_t ForbidInCapture(
    const char* call, cudaError_t error = cudaErrorStreamCaptureUnsupported);
// Ends the capture of this stream, if it captures.
cudaError_t ForbidOnCapturing(cudaStream_t stream, const char* call);

cudaError_t AddToCapture(cudaStream_t stream, Work work);

void BeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
// The stream takes part from where the event was recorded.
cudaError_t JoinCapture(cudaStream_t stream, const CUevent_st& event);
// Null with an error. REQUIRES: the stream captures.
cudaError_t EndCapture(cudaStream_t stream, cudaGraph_t* graph);

// REQUIRES: the stream does not capture.
void LaunchGraph(CUgraphExec_st& graph, cudaStream_t stream);

}  // namespace onnx_fp8::emulation
