// SPDX-License-Identifier: Apache-2.0
//
// The library for convolutions on the emulated device, as tests see it.
#pragma once

#include <vector>

#include "providers/cuda/convolution/library.h"

namespace onnx_fp8::cuda {

// Without: new queues have no library. At first there is one.
void SetConvolutionLibrary(bool exists);

// The problems that were run since the last call.
std::vector<ConvolutionProblem> TakeConvolutions();

}  // namespace onnx_fp8::cuda
