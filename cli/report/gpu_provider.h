// SPDX-License-Identifier: Apache-2.0
//
// The provider whose kernels a forecast for a GPU plans.
#pragma once

#include <string>
#include <vector>

#include "training/run/option.h"

namespace onnx_fp8 {

// The option `provider`, or cuda if this build has its library, or cpu.
// Errors: HasProvider's.
std::string ProviderForGpu(const OptionSet& flags);

// Adds a note if the provider's kernels are not a GPU's.
void NoteKernels(const std::string& provider, const std::string& gpu,
                 std::vector<std::string>& notes);

}  // namespace onnx_fp8
