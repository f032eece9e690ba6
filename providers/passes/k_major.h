// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Gives FP8 products operands whose rows lie along K: GPUs multiply no others.
// The provider has kernels that write both orientations of a tensor while they
// quantize it (QuantizeTensorTranspose, QuantizeWithTranspose), where the
// tensor has one scale. If columns have a scale each, or parts of columns, its
// kernel QuantizeColumns writes the transpose alone, because only products
// that read that read such codes. The codes are the same. Products of other
// sizes than multiples of 16, and of codes that no such node makes, stay as
// they are.
void MakeKMajor(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
