// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "providers/kernel.h"

namespace onnx_fp8 {

// Whether a provider with these kernels runs the node: by a kernel, by a body
// of ops that it runs, or as an op of sequences, which Specialize replaces.
// REQUIRES: operands with types.
bool RunsOn(const KernelRegistry& kernels, const Node& node);

// The operands that decide the shape of a result, or the amount of work.
std::vector<size_t> SizesOf(const KernelRegistry& kernels, const Node& node);

}  // namespace onnx_fp8
