// SPDX-License-Identifier: Apache-2.0
//
// Declares the functions and records of CUPTI that we use. The build therefore
// needs neither CUPTI's headers nor its library.
#pragma once

#include <cstddef>
#include <cstdint>

namespace onnx_fp8::cuda {

// CUpti_ActivityKind. CUPTI_ACTIVITY_KIND_KERNEL (3) is never enabled: it makes
// kernels run one after the other.
enum CuptiKind : uint32_t {
  kCuptiMemcpy = 1,
  kCuptiMemset = 2,
  kCuptiConcurrentKernel = 10,
};

constexpr int kCuptiSuccess = 0;
constexpr size_t kCuptiAlign = 8;  // of buffers

// Offsets of a record's fields, in bytes. CUPTI of CUDA 12 and 13 writes
// several versions of each struct, whose offsets are equal:
// CUpti_ActivityKernel9 to 11, CUpti_ActivityMemcpy5 and 6,
// CUpti_ActivityMemset4.
struct CuptiLayout {
  size_t begin, end;                     // nanoseconds, uint64_t
  size_t stream, correlation, graph_id;  // uint32_t; graph_id 0: no graph
};
constexpr CuptiLayout kCuptiKernelLayout = {16, 24, 48, 92, 156};
constexpr size_t kCuptiKernelName = 104;  // const char*
constexpr CuptiLayout kCuptiCopyLayout = {16, 24, 40, 44, 72};
constexpr size_t kCuptiCopyKind = 4;  // uint8_t
constexpr CuptiLayout kCuptiClearLayout = {16, 24, 40, 44, 72};

// A function of CUPTI is a member without the prefix "cupti". Results are
// CUptiResult.
struct Cupti {
  int (*GetTimestamp)(uint64_t* nanoseconds);
  int (*GetResultString)(int result, const char** text);
  int (*ActivityRegisterCallbacks)(
      void (*request)(uint8_t** buffer, size_t* size, size_t* most_records),
      void (*complete)(void* context, uint32_t stream, uint8_t* buffer,
                       size_t size, size_t valid));
  int (*ActivityEnable)(uint32_t kind);
  int (*ActivityDisable)(uint32_t kind);
  int (*ActivityFlushAll)(uint32_t flag);
  // A record begins with its kind, a uint32_t.
  int (*ActivityGetNextRecord)(uint8_t* buffer, size_t valid, void** record);
  int (*ActivityGetNumDroppedRecords)(void* context, uint32_t stream,
                                      size_t* dropped);
};

// Errors: the machine has no libcupti of CUDA 12 or 13.
const Cupti& CuptiFunctions();

}  // namespace onnx_fp8::cuda
