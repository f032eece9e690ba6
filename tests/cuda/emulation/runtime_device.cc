// SPDX-License-Identifier: Apache-2.0
//
// The C interface: the device and its kernels.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/blocks.h"
#include "tests/cuda/emulation/captures.h"
#include "tests/cuda/emulation/emulation.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/shared_memory.h"
#include "tests/cuda/emulation/symbols.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::emulation {
namespace {

constexpr int kMultiprocessors = 4, kThreadsPerMultiprocessor = 2048;
constexpr int kBlocksPerMultiprocessor = 32;
constexpr size_t kSharedPerMultiprocessor = 228 << 10, kSharedReserved = 1024;

// -1: not emulated.
int AttributeOf(cudaDeviceAttr attribute) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      return ComputeCapability();
    case cudaDevAttrComputeCapabilityMinor:
      return 0;
    case cudaDevAttrMultiProcessorCount:
      return kMultiprocessors;
    case cudaDevAttrWarpSize:
      return 32;
    case cudaDevAttrMaxThreadsPerBlock:
      return 1024;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      return kThreadsPerMultiprocessor;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      return 48 << 10;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      return static_cast<int>(kMaxDynamicShared);
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      return static_cast<int>(kSharedPerMultiprocessor);
    case cudaDevAttrReservedSharedMemoryPerBlock:
      return static_cast<int>(kSharedReserved);
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      return 65536;
    case cudaDevAttrL2CacheSize:
      return 50 << 20;
    case cudaDevAttrClockRate:
      return 1'980'000;  // kHz
    case cudaDevAttrMemoryClockRate:
      return 2'619'000;  // kHz
    case cudaDevAttrGlobalMemoryBusWidth:
      return 5120;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrStreamPrioritiesSupported:
      return 1;
    case cudaDevAttrIntegrated:
    case cudaDevAttrEccEnabled:
      return 0;
    default:
      return -1;
  }
}

cudaDeviceProp Properties() {
  cudaDeviceProp p;
  std::memset(&p, 0, sizeof p);
  bool hopper = ComputeCapability() == 9;
  std::snprintf(p.name, sizeof p.name, "Emulated %s", hopper ? "H100" : "B200");
  p.major = ComputeCapability();
  p.totalGlobalMem = TotalMemory();
  p.multiProcessorCount = kMultiprocessors;
  p.warpSize = 32;
  p.maxThreadsPerBlock = 1024;
  p.maxThreadsPerMultiProcessor = kThreadsPerMultiprocessor;
  p.maxBlocksPerMultiProcessor = kBlocksPerMultiprocessor;
  p.maxThreadsDim[0] = p.maxThreadsDim[1] = 1024;
  p.maxThreadsDim[2] = 64;
  p.maxGridSize[0] = 0x7FFFFFFF;
  p.maxGridSize[1] = p.maxGridSize[2] = 65535;
  p.sharedMemPerBlock = 48 << 10;
  p.sharedMemPerBlockOptin = kMaxDynamicShared;
  p.sharedMemPerMultiprocessor = kSharedPerMultiprocessor;
  p.reservedSharedMemPerBlock = kSharedReserved;
  p.regsPerBlock = p.regsPerMultiprocessor = 65536;
  p.l2CacheSize = 50 << 20;
  p.memoryBusWidth = 5120;
  p.unifiedAddressing = p.concurrentKernels = 1;
  p.memoryPoolsSupported = p.streamPrioritiesSupported = 1;
  p.asyncEngineCount = 3;
  return p;
}

cudaError_t CheckDevice(int device) {
  return device == 0 ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t SetDynamicShared(const void* kernel, int bytes) {
  size_t most = kMaxDynamicShared - StaticSharedBytes(kernel);
  if (bytes < 0 || static_cast<size_t>(bytes) > most) {
    Report(FunctionName(kernel), " can't have ", bytes,
           " bytes of dynamic shared memory");
    return cudaErrorInvalidValue;
  }
  GrantShared(kernel, static_cast<size_t>(bytes));
  return cudaSuccess;
}

int BlocksPerMultiprocessor(const void* kernel, int threads, size_t dynamic) {
  int warps = (threads + 31) / 32;
  size_t shared = StaticSharedBytes(kernel) + dynamic + kSharedReserved;
  auto by_shared = static_cast<int>(kSharedPerMultiprocessor / shared);
  int by_threads = kThreadsPerMultiprocessor / 32 / warps;
  return std::min({by_shared, by_threads, kBlocksPerMultiprocessor});
}

}  // namespace

extern "C" {

cudaError_t cudaGetDeviceCount(int* count) {
  return Api(__func__, [&] { return *count = 1, cudaSuccess; });
}

cudaError_t cudaSetDevice(int device) {
  return Api(__func__, [&] { return CheckDevice(device); });
}

cudaError_t cudaGetDevice(int* device) {
  return Api(__func__, [&] { return *device = 0, cudaSuccess; });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute,
                                   int device) {
  return Api(__func__, [&] {
    if (device != 0) return cudaErrorInvalidDevice;
    *value = AttributeOf(attribute);
    if (*value >= 0) return cudaSuccess;
    Report("cudaDeviceGetAttribute(", static_cast<int>(attribute),
           ") is not emulated");
    return cudaErrorNotSupported;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return Api(__func__, [&] {
    *properties = Properties();
    return CheckDevice(device);
  });
}

cudaError_t cudaDriverGetVersion(int* version) {
  return Api(__func__, [&] { return *version = CUDART_VERSION, cudaSuccess; });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  return Api(__func__, [&] { return *version = CUDART_VERSION, cudaSuccess; });
}

cudaError_t cudaDeviceSynchronize() {
  return Api(__func__, [] {
    cudaError_t error = ForbidInCapture("cudaDeviceSynchronize");
    return error == cudaSuccess ? DrainAll() : error;
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return Api(__func__, [&] {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel,
                                 cudaFuncAttribute attribute, int value) {
  return Api(__func__, [&] {
    switch (attribute) {
      case cudaFuncAttributeMaxDynamicSharedMemorySize:
        return SetDynamicShared(kernel, value);
      case cudaFuncAttributePreferredSharedMemoryCarveout:
        return value >= -1 && value <= 100 ? cudaSuccess
                                           : cudaErrorInvalidValue;
      default:
        Report("cudaFuncSetAttribute(", static_cast<int>(attribute),
               ") is not emulated");
        return cudaErrorNotSupported;
    }
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes,
                                  const void* kernel) {
  return Api(__func__, [&] {
    *attributes = {};
    attributes->sharedSizeBytes = StaticSharedBytes(kernel);
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(GrantedShared(kernel));
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = 90;
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          const void* kernel,
                                                          int threads,
                                                          size_t dynamic) {
  return Api(__func__, [&] {
    if (threads <= 0 || threads > 1024) return cudaErrorInvalidValue;
    bool fits = dynamic <= GrantedShared(kernel);
    *blocks = fits ? BlocksPerMultiprocessor(kernel, threads, dynamic) : 0;
    return cudaSuccess;
  });
}

}  // extern "C"
}  // namespace onnx_fp8::emulation
