// SPDX-License-Identifier: Apache-2.0
//
// The C interface: streams and events.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <set>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/captures.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {
namespace {

std::set<cudaEvent_t>& Events() {
  static auto& events = *new std::set<cudaEvent_t>;
  return events;
}

// Calls f with the stream that the handle means.
template <typename F>
cudaError_t WithStream(const char* call, cudaStream_t handle, F f) {
  return Api(call, [&] {
    cudaStream_t stream = StreamOf(handle);
    return stream ? f(stream) : cudaErrorInvalidResourceHandle;
  });
}

template <typename F>
cudaError_t WithEvent(const char* call, cudaEvent_t event, F f) {
  return Api(call, [&] {
    return Events().contains(event) ? f() : cudaErrorInvalidResourceHandle;
  });
}

cudaError_t CreateStream(cudaStream_t* stream, unsigned flags, int priority) {
  if (flags & ~unsigned{cudaStreamNonBlocking}) return cudaErrorInvalidValue;
  bool blocking = !(flags & cudaStreamNonBlocking);
  *stream = NewStream(blocking, std::clamp(priority, -5, 0));
  return cudaSuccess;
}

cudaError_t CreateEvent(cudaEvent_t* event, unsigned flags) {
  if (flags & cudaEventInterprocess) {
    Report("events of several processes are not emulated");
    return cudaErrorNotSupported;
  }
  *event = new CUevent_st{.timed = !(flags & cudaEventDisableTiming)};
  Events().insert(*event);
  return cudaSuccess;
}

cudaError_t Record(CUevent_st& event, cudaStream_t stream) {
  event.capture = stream->capture;
  event.tails = stream->tails;
  event.op = nullptr;
  if (stream->capture) return cudaSuccess;
  cudaError_t error = Enqueue(stream, {.what = "an event"});
  event.op = stream->tail;
  return error;
}

cudaError_t WaitFor(cudaStream_t stream, const CUevent_st& event) {
  if (event.capture) return JoinCapture(stream, event);
  if (stream->capture) {
    stream->capture->invalid = true;
    Report("a stream that captures waits for an event from outside");
    return cudaErrorStreamCaptureIsolation;
  }
  std::vector<OpRef> after = Before(stream);
  after.push_back(event.op);
  stream->tail = AddOp({.what = "a wait"}, after);
  return cudaSuccess;
}

cudaError_t ForbidCaptured(const CUevent_st& event, const char* call) {
  if (!event.capture) return cudaSuccess;
  event.capture->invalid = true;
  Report(call, " is not allowed on an event of a capture");
  return cudaErrorCapturedEvent;
}

cudaError_t QueryOp(const OpRef& op) {
  return Poll(op) ? cudaSuccess : cudaErrorNotReady;
}

// Pieces of work between the events stand for time.
cudaError_t Elapsed(float* milliseconds, const CUevent_st& begin,
                    const CUevent_st& end) {
  if (!begin.timed || !end.timed || !begin.op || !end.op) {
    return cudaErrorInvalidResourceHandle;
  }
  if (!begin.op->done || !end.op->done) return cudaErrorNotReady;
  auto pieces = static_cast<int64_t>(end.op->time - begin.op->time);
  *milliseconds = static_cast<float>(pieces) * 0.01f;
  return cudaSuccess;
}

void CallHost(cudaHostFn_t function, void* data) {
  ClosedMemory closed;
  HostFunctionRuns runs;
  function(data);
}

}  // namespace

extern "C" {

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return Api(__func__,
             [&] { return CreateStream(stream, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return Api(__func__, [&] { return CreateStream(stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int priority) {
  return Api(__func__, [&] { return CreateStream(stream, flags, priority); });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return WithStream(__func__, handle, [&](cudaStream_t stream) {
    return *priority = stream->priority, cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  return WithStream(__func__, handle, [&](cudaStream_t stream) {
    if (stream == LegacyStream()) return cudaErrorInvalidResourceHandle;
    cudaError_t error = ForbidOnCapturing(stream, "cudaStreamDestroy");
    if (error == cudaSuccess) DeleteStream(stream);
    return error;
  });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return WithStream(__func__, handle, [&](cudaStream_t stream) {
    cudaError_t error = ForbidOnCapturing(stream, "cudaStreamSynchronize");
    if (error != cudaSuccess) return error;
    bool legacy = stream == LegacyStream();
    return Drain(legacy ? Before(stream) : std::vector{stream->tail});
  });
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return WithStream(__func__, handle, [&](cudaStream_t stream) {
    cudaError_t error = ForbidOnCapturing(stream, "cudaStreamQuery");
    return error == cudaSuccess ? QueryOp(stream->tail) : error;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event,
                                unsigned) {
  return WithStream(__func__, handle, [&](cudaStream_t stream) {
    if (!Events().contains(event)) return cudaErrorInvalidResourceHandle;
    return WaitFor(stream, *event);
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function,
                               void* data) {
  return WithStream(__func__, handle, [&](cudaStream_t) {
    return Enqueue(handle, {.what = "a function of the host",
                            .type = cudaGraphNodeTypeHost,
                            .run = [=] { CallHost(function, data); }});
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return Api(__func__, [&] { return CreateEvent(event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return Api(__func__, [&] { return CreateEvent(event, flags); });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return WithEvent(__func__, event, [&] {
    Events().erase(event);
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
  return WithStream(__func__, handle, [&](cudaStream_t stream) {
    if (!Events().contains(event)) return cudaErrorInvalidResourceHandle;
    return Record(*event, stream);
  });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return WithEvent(__func__, event, [&] {
    cudaError_t error = ForbidCaptured(*event, "cudaEventSynchronize");
    return error == cudaSuccess ? Drain({event->op}) : error;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return WithEvent(__func__, event, [&] {
    cudaError_t error = ForbidCaptured(*event, "cudaEventQuery");
    return error == cudaSuccess ? QueryOp(event->op) : error;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin,
                                 cudaEvent_t end) {
  return WithEvent(__func__, begin, [&] {
    if (!Events().contains(end)) return cudaErrorInvalidResourceHandle;
    return Elapsed(milliseconds, *begin, *end);
  });
}

}  // extern "C"
}  // namespace onnx_fp8::emulation
