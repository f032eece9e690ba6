// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Stores the scales of MX formats as float8e8m0 where a recipe keeps them as
// floats: scales of 32 elements that are powers of two by rule (`pow2` of
// QuantizeBlock). They are the same numbers: the rule bounds them to 2^-126 …
// 2^126. Only if nothing but products reads them whose kernels ask for it
// (KernelTraits::byte_scales): GPUs multiply with no other scales of 32
// elements, or decode operands exactly into 16 bits.
void StoreMxScales(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
