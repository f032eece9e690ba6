// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Joins an update with the quantizer of its new parameter, in a step that keeps
// FP8 copies of weights as state (graph/fp8/primary_weights.h): the kernel
// (KernelTraits::coded_state) writes codes, scale and amax while it has the
// numbers. The scale must not wait for an update, as a delayed one does not. A
// RoundTo and nodes that decode the parameter may lie between. Codes in the
// other orientation become a Transpose of the update's codes. No bit changes.
// Behind all other operands the update then has
//   scale           with the attributes `to`, `q_max` and `round_to`
// and behind all other results
//   codes, scale, amax
// Padded codes, and parts of a weight whose amax ranks combine, stay apart.
// Comes behind JoinMasters and JoinMoments.
void JoinWeightCodes(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
