// SPDX-License-Identifier: Apache-2.0
//
// The C interface: memory and copies.
#include <cuda_runtime_api.h>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/captures.h"
#include "tests/cuda/emulation/copies.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {
namespace {

cudaError_t AllocateNow(const char* call, bool device, void** p, size_t bytes) {
  cudaError_t error = ForbidInCapture(call);
  return error == cudaSuccess ? Allocate(device, bytes, p) : error;
}

// The allocation that begins at p. Reports that there is none.
Allocation* ToFree(const void* p, bool device) {
  Allocation* a = FindBegin(p);
  if (a && a->device == device && !a->leaving) return a;
  Report("freed what is no allocation: ", Describe(p));
  return nullptr;
}

// Waits for all work, as the real ones do.
cudaError_t FreeNow(const char* call, bool device, void* p) {
  cudaError_t error = ForbidInCapture(call);
  if (error != cudaSuccess || !p) return error;
  Allocation* a = ToFree(p, device);
  if (!a) return cudaErrorInvalidValue;
  error = DrainAll();
  Release(*a);
  return error;
}

cudaError_t AllocateInStream(void** p, size_t bytes, cudaStream_t handle) {
  *p = nullptr;
  cudaStream_t stream = StreamOf(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  cudaError_t error = ForbidOnCapturing(stream, "cudaMallocAsync");
  if (error != cudaSuccess) return error;
  // Memory whose free waits in a stream may be what is missing.
  if (bytes > FreeMemory()) error = DrainAll();
  if (error != cudaSuccess) return error;
  error = Allocate(true, bytes, p, Allocation::State::kComing);
  if (error != cudaSuccess || !*p) return error;
  Allocation* a = FindBegin(*p);
  a->of_stream = true;
  return Enqueue(handle, {.what = "cudaMallocAsync", .run = [a] {
                            if (a->state == Allocation::State::kComing) {
                              Revive(*a);
                            }
                          }});
}

cudaError_t FreeInStream(void* p, cudaStream_t handle) {
  cudaStream_t stream = StreamOf(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  cudaError_t error = ForbidOnCapturing(stream, "cudaFreeAsync");
  if (error != cudaSuccess || !p) return error;
  Allocation* a = ToFree(p, true);
  if (!a) return cudaErrorInvalidValue;
  if (!a->of_stream) {
    Report("cudaFreeAsync of memory that cudaMalloc gave: ", Describe(p));
    return cudaErrorInvalidValue;
  }
  a->leaving = true;
  return Enqueue(handle,
                 {.what = "cudaFreeAsync", .run = [a] { Release(*a); }});
}

constexpr unsigned kHostFlags =
    cudaHostAllocPortable | cudaHostAllocMapped | cudaHostAllocWriteCombined;

}  // namespace

extern "C" {

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  return Api(__func__, [&] {
    *free = FreeMemory();
    *total = TotalMemory();
    return cudaSuccess;
  });
}

cudaError_t cudaMalloc(void** p, size_t bytes) {
  return Api(__func__,
             [&] { return AllocateNow("cudaMalloc", true, p, bytes); });
}

cudaError_t cudaFree(void* p) {
  return Api(__func__, [&] { return FreeNow("cudaFree", true, p); });
}

cudaError_t cudaMallocAsync(void** p, size_t bytes, cudaStream_t stream) {
  return Api(__func__, [&] { return AllocateInStream(p, bytes, stream); });
}

cudaError_t cudaFreeAsync(void* p, cudaStream_t stream) {
  return Api(__func__, [&] { return FreeInStream(p, stream); });
}

cudaError_t cudaMallocHost(void** p, size_t bytes) {
  return Api(__func__,
             [&] { return AllocateNow("cudaMallocHost", false, p, bytes); });
}

cudaError_t cudaHostAlloc(void** p, size_t bytes, unsigned flags) {
  return Api(__func__, [&] {
    if (flags & ~kHostFlags) return cudaErrorInvalidValue;
    return AllocateNow("cudaHostAlloc", false, p, bytes);
  });
}

cudaError_t cudaFreeHost(void* p) {
  return Api(__func__, [&] { return FreeNow("cudaFreeHost", false, p); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes,
                            cudaMemcpyKind kind, cudaStream_t stream) {
  return Api(__func__, [&] {
    return EnqueueCopy({.to = to, .from = from, .width = bytes, .kind = kind},
                       stream);
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes,
                       cudaMemcpyKind kind) {
  return Api(__func__, [&] {
    return EnqueueCopy(
        {.to = to, .from = from, .width = bytes, .kind = kind, .async = false},
        nullptr);
  });
}

cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                              size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  return Api(__func__, [&] {
    return EnqueueCopy({to, to_pitch, from, from_pitch, width, height, kind},
                       stream);
  });
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes,
                            cudaStream_t stream) {
  return Api(__func__, [&] { return EnqueueFill(p, value, bytes, stream); });
}

// It does not wait either.
cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return Api(__func__, [&] { return EnqueueFill(p, value, bytes, nullptr); });
}

}  // extern "C"
}  // namespace onnx_fp8::emulation
