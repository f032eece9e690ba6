// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace onnx_fp8::cuda {

// Registers the program's kernels with CUDA's runtime, once. A kernel cannot
// be started before.
void RegisterWithRuntime();

}  // namespace onnx_fp8::cuda
