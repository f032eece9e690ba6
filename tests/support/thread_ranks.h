// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// Runs `rank` on `size` threads of this process, each with the communicator of
// its rank. Messages are compared: another call or another size on two ranks is
// an error, and so is a call of one rank when another one has returned. An
// error of a rank ends the others. Errors: the first failed rank's.
void RunRanks(int size, const std::function<void(Communicator&)>& rank,
              size_t message_bytes = Communicator::kMessageBytes);

}  // namespace onnx_fp8
