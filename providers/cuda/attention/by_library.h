// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "providers/cuda/attention/library.h"
#include "providers/ops/attention_sizes.h"

namespace onnx_fp8::cuda {

// The library's problem. Operands and results are (B,rows,heads·d), as linear
// layers leave them. The problem of the forward pass has no lse.
LibraryProblem ProblemOf(const AttentionSizes& z, bool backward);

// The bytes of the workspace that parts of the node share (parts.h); without a
// device, the most. nullopt: the library can't compute the node.
std::optional<size_t> LibraryWorkspace(KernelContext& ctx,
                                       const AttentionSizes& z,
                                       const AttentionInputs& in);

// The same as AttentionForward and AttentionBackward, by the library of
// library.h. False: it can't compute this node, and nothing was done. It can if
// all operands and results but lse are kept as bfloat16, heads are as wide as a
// multiple of 8 up to 128, and there is no bias. Traffic of its own: a measured
// result is read once more.
bool ForwardByLibrary(KernelContext& ctx, const AttentionSizes& z,
                      const AttentionInputs& in);
bool BackwardByLibrary(KernelContext& ctx, const AttentionSizes& z,
                       const AttentionInputs& in);

}  // namespace onnx_fp8::cuda
