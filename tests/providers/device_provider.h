// SPDX-License-Identifier: Apache-2.0
//
// A device that is none: it finds code that takes a provider's memory for the
// host's, or its work for done.
#pragma once

#include <memory>

#include "providers/provider.h"

namespace onnx_fp8 {

// The CPU's kernels behind memory that nobody can touch except while they or a
// copy run. Kernels, copies from the host and frees wait in a queue until
// somebody waits for them. Fresh memory is full of NaN; freed memory crashes.
// REQUIRES: graphs outlive the work on them.
std::unique_ptr<ExecutionProvider> MakeDeviceProvider();

}  // namespace onnx_fp8
