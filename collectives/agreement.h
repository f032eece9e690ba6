// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "collectives/communicator.h"

namespace onnx_fp8 {

// Compares `lines` over all ranks, which must all call it. Only if they differ
// is the text itself sent.
// Errors, on all ranks: the first line that differs from that of rank 0, the
// rank and both texts, as "[what] expected …, as rank 0, got … on rank 1".
void CheckAgreement(Communicator& communicator, const std::string& what,
                    const std::vector<std::string>& lines);

}  // namespace onnx_fp8
