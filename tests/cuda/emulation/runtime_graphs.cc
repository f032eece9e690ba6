// SPDX-License-Identifier: Apache-2.0
//
// The C interface: captures and graphs.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <set>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/captures.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {
namespace {

template <typename T>
std::set<T*>& Alive() {
  static auto& alive = *new std::set<T*>;
  return alive;
}

// Calls f if the handle is one of ours.
template <typename T, typename F>
cudaError_t WithHandle(const char* call, T* handle, F f) {
  return Api(call, [&] {
    return Alive<T>().contains(handle) ? f() : cudaErrorInvalidValue;
  });
}

template <typename T>
cudaError_t Destroy(const char* call, T* handle) {
  return WithHandle(call, handle, [&] {
    Alive<T>().erase(handle);
    delete handle;
    return cudaSuccess;
  });
}

cudaError_t Begin(cudaStream_t handle, cudaStreamCaptureMode mode) {
  cudaStream_t stream = StreamOf(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (stream == LegacyStream()) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture) return cudaErrorIllegalState;
  BeginCapture(stream, mode);
  return cudaSuccess;
}

cudaError_t End(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  cudaStream_t stream = StreamOf(handle);
  if (!stream || !stream->capture) return cudaErrorIllegalState;
  Alive<CUgraph_st>().erase(stream->capture->graph.get());
  cudaError_t error = EndCapture(stream, graph);
  if (*graph) Alive<CUgraph_st>().insert(*graph);
  return error;
}

cudaStreamCaptureStatus StatusOf(const CUstream_st& stream) {
  if (!stream.capture) return cudaStreamCaptureStatusNone;
  return stream.capture->invalid ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
}

cudaError_t GetNodes(CUgraph_st& graph, cudaGraphNode_t* nodes, size_t* count) {
  size_t n = graph.nodes.size();
  if (nodes) {
    for (size_t i = 0; i < *count; ++i) {
      nodes[i] = i < n ? &graph.nodes[i] : nullptr;
    }
    n = std::min(n, *count);
  }
  *count = n;
  return cudaSuccess;
}

cudaError_t Launch(CUgraphExec_st& graph, cudaStream_t handle) {
  cudaStream_t stream = StreamOf(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  cudaError_t error = ForbidOnCapturing(stream, "cudaGraphLaunch");
  if (error == cudaSuccess) LaunchGraph(graph, stream);
  return error;
}

}  // namespace

extern "C" {

cudaError_t cudaStreamBeginCapture(cudaStream_t stream,
                                   cudaStreamCaptureMode mode) {
  return Api(__func__, [&] { return Begin(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  return Api(__func__, [&] { return End(stream, graph); });
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle,
                                  cudaStreamCaptureStatus* status) {
  return Api(__func__, [&] {
    cudaStream_t stream = StreamOf(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    *status = StatusOf(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle,
                                     cudaStreamCaptureStatus* status,
                                     unsigned long long* id, cudaGraph_t* graph,
                                     const cudaGraphNode_t** dependencies,
#if CUDART_VERSION >= 13000
                                     const cudaGraphEdgeData** edges,
#endif
                                     size_t* count) {
  return Api(__func__, [&] {
    bool others = id || dependencies || count;
#if CUDART_VERSION >= 13000
    others |= edges != nullptr;
#endif
    cudaStream_t stream = StreamOf(handle);
    if (!stream || others) return cudaErrorInvalidValue;
    *status = StatusOf(*stream);
    if (graph) {
      *graph = stream->capture ? stream->capture->graph.get() : nullptr;
      if (*graph) Alive<CUgraph_st>().insert(*graph);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes,
                              size_t* count) {
  return WithHandle(__func__, graph,
                    [&] { return GetNodes(*graph, nodes, count); });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node,
                                 cudaGraphNodeType* type) {
  return Api(__func__, [&] { return *type = node->work.type, cudaSuccess; });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph,
                                 unsigned long long) {
  return WithHandle(__func__, graph, [&] {
    *exec = new CUgraphExec_st{graph->nodes, nullptr};
    Alive<CUgraphExec_st>().insert(*exec);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t stream) {
  return WithHandle(__func__, exec, [&] {
    return StreamOf(stream) ? cudaSuccess : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return WithHandle(__func__, exec, [&] { return Launch(*exec, stream); });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return Destroy(__func__, graph);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return Destroy(__func__, exec);
}

}  // extern "C"
}  // namespace onnx_fp8::emulation
