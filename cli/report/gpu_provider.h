// SPDX-License-Identifier: Apache-2.0
//
// The provider whose kernels a forecast for a GPU plans.
#pragma once

#include <string>
#include <vector>

#include "training/run/option.h"

namespace onnx_fp8 {

// The provider that the option `provider` names. Without that option: cuda if
// this build has its library, otherwise cpu. Errors: HasProvider's.
std::string ProviderForGpu(const OptionSet& flags);

// Adds a note to `notes` if the provider runs on the CPU: a GPU's plan needs
// other memory. The note names the way to a GPU's kernels.
void NoteKernels(const std::string& provider, const std::string& gpu,
                 std::vector<std::string>& notes);

}  // namespace onnx_fp8
