// SPDX-License-Identifier: Apache-2.0
//
// What happens where code touches memory that is closed to it.
#pragma once

#include <cuda_runtime_api.h>

namespace onnx_fp8::emulation {

// Installs the signal handler, once; and a stack for it in each thread.
void CatchFaults();

// Ends the work that runs: a kernel did what a device does not survive. All
// later calls return `error`. REQUIRES: work runs, on this thread.
[[noreturn]] void Fault(cudaError_t error);

// What Fault throws if the work is not a kernel.
struct Faulted {};

}  // namespace onnx_fp8::emulation
