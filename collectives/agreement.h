// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// Compares the `lines` of all ranks. Every rank must call it. The ranks send a
// hash, and the text only if the hashes differ.
// Errors, on all ranks: a rank has another text than rank 0. The message has
// the first line that differs: "[what] expected …, as rank 0, got … on rank 1".
void CheckAgreement(Communicator& communicator, const std::string& what,
                    const std::vector<std::string>& lines);

}  // namespace onnx_fp8
