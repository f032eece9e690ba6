// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "collectives/launcher.h"

namespace onnx_fp8 {

// Gives each rank of a job the texts of all ranks, in order. Each calls it with
// its own text, at most 64 KiB. Rank 0 listens at `launcher.meeting`; the
// others connect, again and again until it is there.
// REQUIRES: launcher.meeting.
// Errors: a rank has not come within `patience`; its port is taken; a host
// without an address; another number of ranks than rank 0 has; two processes of
// one rank. Ranks that have come learn rank 0's error.
std::vector<std::string> MeetRanks(const Launcher& launcher,
                                   const std::string& text,
                                   std::chrono::milliseconds patience);

}  // namespace onnx_fp8
