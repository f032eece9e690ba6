// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <memory>

#include "collectives/communicator.h"
#include "collectives/handshake.h"
#include "collectives/job_secret.h"
#include "collectives/launcher.h"

namespace onnx_fp8 {

struct TcpOptions {
  // How long a rank waits for the others to start.
  std::chrono::milliseconds patience = std::chrono::minutes(1);
  size_t message_bytes = Communicator::kMessageBytes;
  SecretChoice secret = {};
  // Tells of the first stranger that comes.
  Say say = {};
};

// The group of all ranks of a job, over TCP alone: for ranks that torchrun or
// shells have started. Each rank has a connection to each other rank. When the
// communicator is destroyed, it waits for the other ranks, unless an exception
// is under way. Call Abort then: the others may wait for this rank.
//
// REQUIRES: launcher.meeting. Errors: `launcher` has started another number of
// ranks than `ranks`; JobSecret's; MeetRanks'; a rank can't be reached.
std::unique_ptr<Communicator> ConnectRanks(int ranks, const Launcher& launcher,
                                           const TcpOptions& options = {});

}  // namespace onnx_fp8
