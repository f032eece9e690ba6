// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "collectives/communicator.h"
#include "providers/plan/plan.h"

namespace onnx_fp8 {

// Bytes that a rank receives in a Run of the plan, for each group, by
// ReceivedBytes: for providers that do not send through a Communicator.
// Broadcasts, which no training step has, do not count.
std::map<std::string, WireBytes> WireBytesOf(const Plan& plan);

}  // namespace onnx_fp8
