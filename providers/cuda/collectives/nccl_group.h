// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>

#include "collectives/communicator.h"
#include "providers/cuda/collectives/nccl.h"

namespace onnx_fp8::cuda {

// A group of ranks over NCCL. The ranks find each other by the communicator of
// the host, whose ranks the group has.
class NcclGroup {
 public:
  // Every rank of `host` makes one at the same time; its GPU is the current
  // one. Errors: NCCL's; there is no NCCL.
  explicit NcclGroup(Communicator& host);
  // Waits for the other ranks, unless an exception is under way or the group
  // has failed: then it ends the work of this rank.
  ~NcclGroup();
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;

  NcclComm comm() const { return comm_; }
  // Errors: `result` is one, or another rank has failed meanwhile. The message
  // has NCCL's own words.
  void CheckNccl(NcclResult result, const char* call);

 private:
  NcclComm comm_ = nullptr;
  int exceptions_;
  bool failed_ = false;
};

// NCCL's group call: calls from its beginning to End are one. An exception ends
// it, too: NCCL would otherwise hold back all later calls of the thread.
class NcclGroupCall {
 public:
  // null: there are no calls, and nothing happens. Errors: NCCL's.
  explicit NcclGroupCall(NcclGroup* group);
  ~NcclGroupCall();
  NcclGroupCall(const NcclGroupCall&) = delete;
  NcclGroupCall& operator=(const NcclGroupCall&) = delete;

  // Its calls begin. Errors: NCCL's.
  void End();

 private:
  NcclGroup* group_;  // null: it has ended
};

// The groups of a queue, made when the first node asks for them.
class NcclGroups {
 public:
  NcclGroup& Of(Communicator& host) {
    std::unique_ptr<NcclGroup>& group = groups_[&host];
    if (!group) group = std::make_unique<NcclGroup>(host);
    return *group;
  }

 private:
  std::map<Communicator*, std::unique_ptr<NcclGroup>> groups_;
};

}  // namespace onnx_fp8::cuda
