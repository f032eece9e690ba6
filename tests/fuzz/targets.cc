// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "base/parallel.h"
#include "tests/fuzz/fuzz_target.h"

namespace onnx_fp8 {
namespace {

constexpr FuzzTarget kTargets[] = {
    {"npz", FuzzNpz},
    {"npy", FuzzNpy},
    {"safetensors", FuzzSafetensors},
    {"weights", FuzzWeights},
    {"adapter", FuzzAdapter},
    {"tokens", FuzzTokens},
    {"json", FuzzJson},
    {"checkpoint", FuzzCheckpoint},
    {"command_line", FuzzCommandLine},
    {"model", FuzzModel},
    {"ort_checkpoint", FuzzOrtCheckpoint},
};

}  // namespace

std::span<const FuzzTarget> FuzzTargets() { return kTargets; }

const FuzzTarget* FindFuzzTarget(std::string_view name) {
  auto found = std::ranges::find(kTargets, name, &FuzzTarget::name);
  return found == std::end(kTargets) ? nullptr : found;
}

void RunFuzzTarget(const FuzzTarget& target, std::string_view bytes) {
  SetNumThreads(1);
  try {
    target.run(bytes);
  } catch (const Error&) {
  }
}

}  // namespace onnx_fp8
