// SPDX-License-Identifier: Apache-2.0
// A simulated device. It finds code that takes memory of the provider for the
// host's, or that does not wait until work is done.
#pragma once

#include <memory>

#include "providers/provider.h"

namespace onnx_fp8 {

// Runs the CPU's kernels on memory that only they and copies can touch.
// Kernels, copies from the host and frees wait in a queue until somebody waits
// for them. Fresh memory is full of NaN; an access to freed memory crashes.
// REQUIRES: graphs outlive the work on them.
std::unique_ptr<ExecutionProvider> MakeDeviceProvider();

}  // namespace onnx_fp8
