// SPDX-License-Identifier: Apache-2.0
//
// The part of NCCL's interface (2.x) that we use. We declare it, because
// toolkits come without nccl.h; a test compares it with that file where there
// is one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>

namespace onnx_fp8::cuda {

// ncclUniqueId: the meeting place of the ranks of a group.
struct NcclId {
  char bytes[128];
};

// ncclComm_t: one rank's view of a group.
using NcclComm = struct ncclComm*;

// ncclResult_t, ncclDataType_t and ncclRedOp_t.
enum NcclResult : int {
  kNcclSuccess = 0,
  kNcclSystemError = 2,
  kNcclInternalError = 3,
  kNcclInvalidArgument = 4,
  kNcclInvalidUsage = 5,
  kNcclRemoteError = 6,
  kNcclInProgress = 7,
};
enum NcclType : int {
  kNcclUInt8 = 1,
  kNcclInt32 = 2,
  kNcclInt64 = 4,
  kNcclFloat = 7,
  kNcclDouble = 8,
};
enum NcclReduction : int { kNcclSum = 0, kNcclMax = 2 };

// The functions of the library. They return when their work is in the stream.
struct Nccl {
  NcclResult (*GetVersion)(int* version);
  NcclResult (*GetUniqueId)(NcclId* id);
  NcclResult (*CommInitRank)(NcclComm* comm, int ranks, NcclId id, int rank);
  NcclResult (*CommDestroy)(NcclComm comm);
  NcclResult (*CommAbort)(NcclComm comm);
  NcclResult (*CommGetAsyncError)(NcclComm comm, NcclResult* error);
  const char* (*GetErrorString)(NcclResult result);
  const char* (*GetLastError)(NcclComm comm);
  // Calls between these two run as one.
  NcclResult (*GroupStart)();
  NcclResult (*GroupEnd)();
  NcclResult (*AllReduce)(const void* x, void* y, size_t count, NcclType type,
                          NcclReduction reduction, NcclComm comm,
                          cudaStream_t stream);
  // y has the counts of all ranks.
  NcclResult (*AllGather)(const void* x, void* y, size_t count, NcclType type,
                          NcclComm comm, cudaStream_t stream);
  // `count`: of y.
  NcclResult (*ReduceScatter)(const void* x, void* y, size_t count,
                              NcclType type, NcclReduction reduction,
                              NcclComm comm, cudaStream_t stream);
  NcclResult (*Broadcast)(const void* x, void* y, size_t count, NcclType type,
                          int root, NcclComm comm, cudaStream_t stream);
};

// nccl_library.cc opens the machine's library; tests of the emulated device
// define their own. Errors: there is no libnccl.so.2.
const Nccl& NcclFunctions();

// "NCCL 2.28.3", or "no NCCL".
std::string NcclText();

}  // namespace onnx_fp8::cuda
