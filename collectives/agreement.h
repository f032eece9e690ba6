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

// A property of a run that all ranks must share: name "--lr", value "0.1". The
// value of a switch is "".
struct Fact {
  std::string name, value;

  bool operator==(const Fact&) const = default;
};

// Compares the `facts` of all ranks in the same way. REQUIRES: the facts of a
// rank have different names. The message has the first fact of rank 0 that
// differs, or the first one that rank 0 lacks:
//   [what] expected --lr 0.1, as rank 0, got --lr 0.2 on rank 1
//   [what] expected no --nesterov, as rank 0, got --nesterov on rank 1
void CheckAgreement(Communicator& communicator, const std::string& what,
                    const std::vector<Fact>& facts);

// The texts of all ranks, in order, on every rank. All ranks must call it.
// Errors: a text of more than 256 MiB.
std::vector<std::string> GatherTexts(Communicator& communicator,
                                     const std::string& text);

}  // namespace onnx_fp8
