// SPDX-License-Identifier: Apache-2.0
// For builds without cuDNN's headers.
#include "base/check.h"
#include "providers/cuda/attention/library.h"

namespace onnx_fp8::cuda {

struct AttentionLibrary::State {};

AttentionLibrary::AttentionLibrary() = default;
AttentionLibrary::~AttentionLibrary() = default;

std::optional<size_t> AttentionLibrary::Workspace(const LibraryProblem&) {
  return std::nullopt;
}

void AttentionLibrary::Run(const LibraryProblem&, const LibraryForward&, void*,
                           cudaStream_t) {
  Fail("[provider cuda] expected a library for attention, got none");
}

void AttentionLibrary::Run(const LibraryProblem&, const LibraryBackward&, void*,
                           cudaStream_t) {
  Fail("[provider cuda] expected a library for attention, got none");
}

}  // namespace onnx_fp8::cuda
