// SPDX-License-Identifier: Apache-2.0
// For builds without cuDNN's headers.
#include "base/check.h"
#include "providers/cuda/convolution/library.h"

namespace onnx_fp8::cuda {

struct ConvolutionLibrary::State {};

ConvolutionLibrary::ConvolutionLibrary() = default;
ConvolutionLibrary::~ConvolutionLibrary() = default;

std::optional<size_t> ConvolutionLibrary::Workspace(const ConvolutionProblem&) {
  return std::nullopt;
}

void ConvolutionLibrary::Run(const ConvolutionProblem&,
                             const ConvolutionMemory&, void*, cudaStream_t) {
  Fail("[provider cuda] expected a library for convolutions, got none");
}

}  // namespace onnx_fp8::cuda
