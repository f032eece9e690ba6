// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// The texts of all ranks, in order, on every rank. All ranks must call it.
// Errors: a text of more than 256 MiB.
std::vector<std::string> GatherTexts(Communicator& communicator,
                                     const std::string& text);

}  // namespace onnx_fp8
