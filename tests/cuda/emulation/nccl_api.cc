// SPDX-License-Identifier: Apache-2.0
//
// NCCL without GPUs. Ranks are processes; a call runs when the stream reaches
// it, and then waits for the other ranks. The calls of a group enter their
// streams when it ends. Calls of ranks that do not fit together are reported,
// where the real one would hang. Sums begin with the last rank: the order of
// the real one is not known either.
#include <unistd.h>

#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "base/check.h"
#include "providers/cuda/collectives/nccl.h"
#include "tests/cuda/emulation/api.h"
#include "tests/cuda/emulation/captures.h"
#include "tests/cuda/emulation/memory.h"
#include "tests/cuda/emulation/rank_meeting.h"
#include "tests/cuda/emulation/reports.h"
#include "tests/cuda/emulation/work.h"

namespace onnx_fp8::cuda {

// The library's opaque type.
struct ncclComm {
  std::shared_ptr<emulation::RankMeeting> meeting;
  int ranks, rank;
  int calls = 0;  // that have run
  NcclResult error = kNcclSuccess;
};

}  // namespace onnx_fp8::cuda

namespace onnx_fp8::emulation {
namespace {

using cuda::NcclComm;
using cuda::NcclId;
using cuda::NcclReduction;
using cuda::NcclResult;
using cuda::NcclType;

// The numbers of a call that all ranks must have in common.
struct NcclCall {
  char name[24];
  int number, type, reduction, root;
  uint64_t count;
  bool operator==(const NcclCall&) const = default;
};

std::string CallText(const NcclCall& c) {
  return Concat(c.name, " of ", c.count, " elements of type ", c.type,
                ", reduction ", c.reduction, ", root ", c.root, ", as call ",
                c.number);
}

std::set<NcclComm>& Comms() {
  static auto& comms = *new std::set<NcclComm>;
  return comms;
}

std::string& LastNcclError() {
  static auto& text = *new std::string;
  return text;
}

template <typename... Parts>
NcclResult RefuseNccl(NcclResult result, const Parts&... parts) {
  LastNcclError() = Concat(parts...);
  Explain(LastNcclError());
  return result;
}

size_t NcclSizeOf(NcclType type) {
  switch (type) {
    case cuda::kNcclUInt8:
      return 1;
    case cuda::kNcclInt32:
    case cuda::kNcclFloat:
      return 4;
    default:
      return 8;
  }
}

// A maximum of NCCL is fmax: NaN is lost.
template <typename T>
T Reduce(int reduction, T a, T b) {
  if (reduction == cuda::kNcclMax) return b != b || a > b ? a : b;
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
  } else {
    return a + b;
  }
}

// `count` elements from `begin` on.
template <typename T>
void ReduceRanks(const NcclCall& call, int ranks, size_t begin, size_t count,
                 const RankMeeting::DataOf& data, void* y) {
  for (size_t i = 0; i < count; ++i) {
    T sum = reinterpret_cast<const T*>(data(ranks - 1))[begin + i];
    for (int r = ranks - 2; r >= 0; --r) {
      sum = Reduce(call.reduction, sum,
                   reinterpret_cast<const T*>(data(r))[begin + i]);
    }
    static_cast<T*>(y)[i] = sum;
  }
}

void ReduceAny(const NcclCall& call, int ranks, size_t begin, size_t count,
               const RankMeeting::DataOf& data, void* y) {
  switch (call.type) {
    case cuda::kNcclFloat:
      return ReduceRanks<float>(call, ranks, begin, count, data, y);
    case cuda::kNcclDouble:
      return ReduceRanks<double>(call, ranks, begin, count, data, y);
    case cuda::kNcclInt32:
      return ReduceRanks<int32_t>(call, ranks, begin, count, data, y);
    case cuda::kNcclInt64:
      return ReduceRanks<int64_t>(call, ranks, begin, count, data, y);
    default:
      return ReduceRanks<uint8_t>(call, ranks, begin, count, data, y);
  }
}

// Whether all ranks make the same call. The first that differs is reported.
bool Agree(cuda::ncclComm& comm, const NcclCall& call) {
  bool agree = true;
  comm.meeting->Meet(&call, sizeof call, [&](const RankMeeting::DataOf& data) {
    NcclCall first;
    std::memcpy(&first, data(0), sizeof first);
    for (int r = 1; r < comm.ranks && agree; ++r) {
      NcclCall other;
      std::memcpy(&other, data(r), sizeof other);
      agree = other == first;
      if (!agree) {
        Report("rank 0 calls ", CallText(first), "; rank ", r, " calls ",
               CallText(other));
      }
    }
  });
  return agree;
}

void RunNccl(cuda::ncclComm& comm, NcclCall call, const void* x, void* y,
             size_t x_bytes, size_t y_bytes) {
  call.number = comm.calls++;
  try {
    if (!Agree(comm, call)) {
      comm.error = cuda::kNcclInvalidUsage;
      SetStickyError(cudaErrorLaunchFailure);
      return;
    }
    if (!Reachable(x, x_bytes) || !Reachable(y, y_bytes)) {
      Report(call.name, " of memory that is no device's: ", Describe(x), ", ",
             Describe(y));
      SetStickyError(cudaErrorIllegalAddress);
      return;
    }
    const size_t n = call.count;
    const auto rank = static_cast<size_t>(comm.rank);
    const std::string name = call.name;
    comm.meeting->Meet(x, x_bytes, [&](const RankMeeting::DataOf& data) {
      if (name == "ncclAllReduce") {
        ReduceAny(call, comm.ranks, 0, n, data, y);
      } else if (name == "ncclReduceScatter") {
        ReduceAny(call, comm.ranks, rank * n, n, data, y);
      } else if (name == "ncclAllGather") {
        for (int r = 0; r < comm.ranks; ++r) {
          std::memcpy(
              static_cast<std::byte*>(y) + static_cast<size_t>(r) * x_bytes,
              data(r), x_bytes);
        }
      } else {
        std::memcpy(y, data(call.root), y_bytes);
      }
    });
  } catch (const onnx_fp8::Error& error) {
    Explain(call.name, ": ", error.what());
    LastNcclError() = error.what();
    comm.error = cuda::kNcclRemoteError;
    SetStickyError(cudaErrorLaunchFailure);
  }
}

bool IsOnDevice(const void* p) {
  const Allocation* allocation = Find(p);
  return allocation && allocation->device;
}

int& OpenGroups() {
  static int open = 0;
  return open;
}

// Calls of the open group, one after another.
std::vector<std::function<NcclResult()>>& HeldCalls() {
  static auto& calls = *new std::vector<std::function<NcclResult()>>;
  return calls;
}

// x and y may overlap only if the call is in place.
NcclResult EnqueueNccl(NcclComm comm, NcclCall call, const void* x, void* y,
                       size_t x_bytes, size_t y_bytes, bool in_place,
                       cudaStream_t stream) {
  ApiCall guard(call.name);
  if (guard.error() != cudaSuccess) {
    return RefuseNccl(cuda::kNcclSystemError, "an earlier error of the device");
  }
  if (!Comms().contains(comm)) {
    return RefuseNccl(cuda::kNcclInvalidArgument, call.name,
                      ": no communicator");
  }
  if (call.count == 0) return cuda::kNcclSuccess;
  if (!IsOnDevice(x) || !IsOnDevice(y)) {
    return RefuseNccl(cuda::kNcclInvalidArgument, call.name,
                      ": expected pointers to device memory, got ", Describe(x),
                      " and ", Describe(y));
  }
  const bool overlap = AddressOf(x) < AddressOf(y) + y_bytes &&
                       AddressOf(y) < AddressOf(x) + x_bytes;
  if (overlap && !in_place) {
    return RefuseNccl(cuda::kNcclInvalidArgument, call.name,
                      ": operand and result overlap");
  }
  const auto begin = [=] {
    const cudaError_t error = Enqueue(
        stream, {.what = call.name,
                 .type = cudaGraphNodeTypeKernel,
                 .run = [=] { RunNccl(*comm, call, x, y, x_bytes, y_bytes); }});
    if (error == cudaSuccess) return cuda::kNcclSuccess;
    return RefuseNccl(cuda::kNcclSystemError, call.name,
                      ": the stream refuses");
  };
  if (OpenGroups() == 0) return begin();
  HeldCalls().push_back(begin);
  return cuda::kNcclSuccess;
}

NcclCall CallOf(const char* name, size_t count, NcclType type, int reduction,
                int root) {
  NcclCall call = {};
  std::strncpy(call.name, name, sizeof call.name - 1);
  call.type = type;
  call.reduction = reduction;
  call.root = root;
  call.count = count;
  return call;
}

// What ncclUniqueId holds.
struct MeetingPlace {
  pid_t process;
  int file;
};

NcclResult GetVersion(int* version) {
  *version = 22803;
  return cuda::kNcclSuccess;
}

// The number of ranks is not known yet, so the first one to join says it.
NcclResult GetUniqueId(NcclId* id) {
  static auto& kept = *new std::vector<std::unique_ptr<RankMeeting>>;
  kept.push_back(std::make_unique<RankMeeting>(0));
  const MeetingPlace place = {getpid(), kept.back()->file()};
  *id = {};
  std::memcpy(id, &place, sizeof place);
  return cuda::kNcclSuccess;
}

NcclResult CommInitRank(NcclComm* comm, int ranks, NcclId id, int rank) {
  ApiCall guard("ncclCommInitRank");
  if (ForbidInCapture("ncclCommInitRank") != cudaSuccess) {
    return RefuseNccl(cuda::kNcclInvalidUsage, "a stream captures");
  }
  if (rank < 0 || rank >= ranks) {
    return RefuseNccl(cuda::kNcclInvalidArgument, "rank ", rank, " of ", ranks);
  }
  MeetingPlace place;
  std::memcpy(&place, &id, sizeof place);
  try {
    auto meeting = std::make_shared<RankMeeting>(place.process, place.file);
    meeting->SetRanks(ranks);
    meeting->Join(rank);
    meeting->Meet(nullptr, 0, [](const RankMeeting::DataOf&) {});
    *comm = new cuda::ncclComm{std::move(meeting), ranks, rank};
  } catch (const onnx_fp8::Error& error) {
    return RefuseNccl(cuda::kNcclRemoteError, error.what());
  }
  Comms().insert(*comm);
  return cuda::kNcclSuccess;
}

// Work that waits still needs the object.
NcclResult CommDestroy(NcclComm comm) {
  ApiCall guard("ncclCommDestroy");
  if (Comms().erase(comm) == 0) return cuda::kNcclInvalidArgument;
  return cuda::kNcclSuccess;
}

NcclResult CommGetAsyncError(NcclComm comm, NcclResult* error) {
  *error = comm->error;
  return cuda::kNcclSuccess;
}

const char* GetErrorString(NcclResult result) {
  switch (result) {
    case cuda::kNcclSuccess:
      return "no error";
    case cuda::kNcclInvalidArgument:
      return "invalid argument";
    case cuda::kNcclInvalidUsage:
      return "invalid usage";
    case cuda::kNcclRemoteError:
      return "remote process exited or there was a network error";
    default:
      return "unhandled system error";
  }
}

const char* GetLastError(NcclComm) { return LastNcclError().c_str(); }

NcclResult GroupStart() {
  ++OpenGroups();
  return cuda::kNcclSuccess;
}

NcclResult GroupEnd() {
  if (OpenGroups() == 0) {
    return RefuseNccl(cuda::kNcclInvalidUsage, "no group is open");
  }
  if (--OpenGroups() > 0) return cuda::kNcclSuccess;
  ApiCall guard("ncclGroupEnd");
  if (guard.error() != cudaSuccess) {
    return RefuseNccl(cuda::kNcclSystemError, "an earlier error of the device");
  }
  for (const auto& begin : std::exchange(HeldCalls(), {})) {
    const NcclResult result = begin();
    if (result != cuda::kNcclSuccess) return result;
  }
  return cuda::kNcclSuccess;
}

NcclResult AllReduce(const void* x, void* y, size_t count, NcclType type,
                     NcclReduction reduction, NcclComm comm,
                     cudaStream_t stream) {
  const size_t bytes = count * NcclSizeOf(type);
  return EnqueueNccl(comm, CallOf("ncclAllReduce", count, type, reduction, 0),
                     x, y, bytes, bytes, x == y, stream);
}

NcclResult AllGather(const void* x, void* y, size_t count, NcclType type,
                     NcclComm comm, cudaStream_t stream) {
  const size_t bytes = count * NcclSizeOf(type);
  const auto ranks = static_cast<size_t>(comm->ranks);
  const auto rank = static_cast<size_t>(comm->rank);
  return EnqueueNccl(comm, CallOf("ncclAllGather", count, type, 0, 0), x, y,
                     bytes, ranks * bytes,
                     AddressOf(x) == AddressOf(y) + rank * bytes, stream);
}

NcclResult ReduceScatter(const void* x, void* y, size_t count, NcclType type,
                         NcclReduction reduction, NcclComm comm,
                         cudaStream_t stream) {
  const size_t bytes = count * NcclSizeOf(type);
  const auto ranks = static_cast<size_t>(comm->ranks);
  const auto rank = static_cast<size_t>(comm->rank);
  return EnqueueNccl(comm,
                     CallOf("ncclReduceScatter", count, type, reduction, 0), x,
                     y, ranks * bytes, bytes,
                     AddressOf(y) == AddressOf(x) + rank * bytes, stream);
}

NcclResult Broadcast(const void* x, void* y, size_t count, NcclType type,
                     int root, NcclComm comm, cudaStream_t stream) {
  const size_t bytes = count * NcclSizeOf(type);
  return EnqueueNccl(comm, CallOf("ncclBroadcast", count, type, 0, root), x, y,
                     bytes, bytes, x == y, stream);
}

}  // namespace
}  // namespace onnx_fp8::emulation

namespace onnx_fp8::cuda {

const Nccl& NcclFunctions() {
  static const Nccl functions = {
      .GetVersion = emulation::GetVersion,
      .GetUniqueId = emulation::GetUniqueId,
      .CommInitRank = emulation::CommInitRank,
      .CommDestroy = emulation::CommDestroy,
      .CommAbort = emulation::CommDestroy,
      .CommGetAsyncError = emulation::CommGetAsyncError,
      .GetErrorString = emulation::GetErrorString,
      .GetLastError = emulation::GetLastError,
      .GroupStart = emulation::GroupStart,
      .GroupEnd = emulation::GroupEnd,
      .AllReduce = emulation::AllReduce,
      .AllGather = emulation::AllGather,
      .ReduceScatter = emulation::ReduceScatter,
      .Broadcast = emulation::Broadcast};
  return functions;
}

}  // namespace onnx_fp8::cuda
