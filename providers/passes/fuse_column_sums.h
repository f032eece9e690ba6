// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Joins the quantizer of a gradient with the sum of the gradient's columns, the
// gradient of a bias, where the provider has a kernel that writes codes across
// rows (QuantizeTensorTranspose, QuantizeWithTranspose, QuantizeColumns,
// QuantizeBlockTranspose): it has the elements at hand. The sum is the same but
// for the order of the additions.
//
// Comes after FuseQuantize, which joins quantizers with the op before them, and
// after JoinOrientations.
void FuseColumnSums(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
