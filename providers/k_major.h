// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Gives FP8 products operands whose rows lie along K, where the provider has
// kernels that write both orientations of a tensor while they quantize it
// (QuantizeTensorTranspose, QuantizeWithTranspose): GPUs multiply no others.
// The codes are the same. Products of other sizes than multiples of 16, and of
// codes that no such node makes, stay as they are.
void MakeKMajor(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
