// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Lets quantizers add the zeros that FP8 products of a GPU need, because GPUs
// multiply no other sizes than multiples of 16: where the provider has the
// kernels (graph/schemas/quantize_padded.cc), a quantizer writes its codes, in
// each orientation that is read, with zeros up to such sizes. So the product
// copies no operand; it only cuts its result.
//
// A quantizer stays as it is if anything else reads its codes, or a product
// whose other operand would still have to be copied.
//
// Comes after MakeKMajor, which serves sizes that need no zeros, and before
// FuseQuantize: a kernel that quantizes its own result adds the zeros, too.
void PadOperands(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
