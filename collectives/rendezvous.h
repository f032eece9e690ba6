// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "collectives/handshake.h"
#include "collectives/job_secret.h"
#include "collectives/launcher.h"

namespace onnx_fp8 {

struct MetRanks {
  std::vector<std::string> texts;  // by rank
  std::string secret;
};

// Gives each rank of a job the texts of all ranks. Each calls it with a
// function that makes its own text, at most 64 KiB, of the address of this rank
// that others can reach. Rank 0 listens at `launcher.meeting`; the others
// connect, again and again until it is there and all have proved that they know
// the secret.
// REQUIRES: launcher.meeting.
// Errors: a rank has not come within `patience`; its port is taken; a host
// without an address, or on rank 0 without one of this machine; another secret
// than rank 0 has. With a secret also: another number of ranks than rank 0 has;
// two processes of one rank. (Without one, such a process is no more than a
// stranger.) Ranks that have come learn rank 0's error.
MetRanks MeetRanks(const Launcher& launcher, const JobSecret& secret,
                   const std::function<std::string(const std::string&)>& text,
                   std::chrono::milliseconds patience, const Say& say = {});

}  // namespace onnx_fp8
