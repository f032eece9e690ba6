// SPDX-License-Identifier: Apache-2.0
//
// One way in which a stranger's bytes reach the program. `./dev fuzz` makes
// inputs; test_fuzz replays the inputs that once were a finding
// (tests/fuzz/regressions/NAME/).
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace onnx_fp8 {

struct FuzzTarget {
  const char* name;
  // Reads `bytes` and uses the result. Throws whatever the program throws.
  void (*run)(std::string_view bytes);
};

std::span<const FuzzTarget> FuzzTargets();

// Null if there is no target of that name.
const FuzzTarget* FindFuzzTarget(std::string_view name);

// Runs the target. Bad input ends in an Error, which this catches.
// Any other exception passes through: it is a finding.
void RunFuzzTarget(const FuzzTarget& target, std::string_view bytes);

void FuzzNpz(std::string_view bytes);            // npz.cc
void FuzzNpy(std::string_view bytes);            // npy.cc
void FuzzSafetensors(std::string_view bytes);    // safetensors.cc
void FuzzWeights(std::string_view bytes);        // weights.cc
void FuzzAdapter(std::string_view bytes);        // adapter.cc
void FuzzTokens(std::string_view bytes);         // tokens.cc
void FuzzJson(std::string_view bytes);           // json.cc
void FuzzCheckpoint(std::string_view bytes);     // checkpoint.cc
void FuzzCommandLine(std::string_view bytes);    // command_line.cc
void FuzzModel(std::string_view bytes);          // model.cc
void FuzzOrtCheckpoint(std::string_view bytes);  // ort_checkpoint.cc

}  // namespace onnx_fp8
