// SPDX-License-Identifier: Apache-2.0
#include "providers/cuda/collectives/nccl_group.h"

#include <exception>
#include <utility>

#include "base/check.h"

namespace onnx_fp8::cuda {

// All ranks learn whether rank 0 has an id, so that none waits for it.
NcclGroup::NcclGroup(Communicator& host)
    : exceptions_(std::uncaught_exceptions()) {
  const Nccl& nccl = NcclFunctions();
  struct {
    NcclId id;
    NcclResult result;
  } first = {};
  if (host.rank() == 0) first.result = nccl.GetUniqueId(&first.id);
  host.Broadcast(&first, sizeof(first), 0);
  CheckNccl(first.result, "ncclGetUniqueId");
  const NcclResult result =
      nccl.CommInitRank(&comm_, host.size(), first.id, host.rank());
  if (result != kNcclSuccess) comm_ = nullptr;
  CheckNccl(result, "ncclCommInitRank");
}

NcclGroup::~NcclGroup() {
  if (!comm_) return;
  const bool aborts = failed_ || std::uncaught_exceptions() != exceptions_;
  const Nccl& nccl = NcclFunctions();
  aborts ? nccl.CommAbort(comm_) : nccl.CommDestroy(comm_);
}

void NcclGroup::CheckNccl(NcclResult result, const char* call) {
  const Nccl& nccl = NcclFunctions();
  if (result == kNcclSuccess && comm_) {
    nccl.CommGetAsyncError(comm_, &result);
  }
  if (result == kNcclSuccess || result == kNcclInProgress) return;
  failed_ = true;
  Fail("[NCCL] ", call, " failed: ", nccl.GetErrorString(result), ": ",
       nccl.GetLastError(comm_));
}

// Errors of other ranks are End's: nobody would close the group for an
// exception from here.
NcclGroupCall::NcclGroupCall(NcclGroup* group) : group_(group) {
  if (!group) return;
  const NcclResult result = NcclFunctions().GroupStart();
  if (result != kNcclSuccess) group->CheckNccl(result, "ncclGroupStart");
}

// After an exception, whose error counts.
NcclGroupCall::~NcclGroupCall() {
  if (group_) NcclFunctions().GroupEnd();
}

void NcclGroupCall::End() {
  NcclGroup* group = std::exchange(group_, nullptr);
  if (group) group->CheckNccl(NcclFunctions().GroupEnd(), "ncclGroupEnd");
}

std::string NcclText() {
  try {
    int version = 0;
    NcclFunctions().GetVersion(&version);
    return Concat("NCCL ", version / 10000, ".", version / 100 % 100, ".",
                  version % 100);
  } catch (const Error&) {
    return "no NCCL";
  }
}

}  // namespace onnx_fp8::cuda
