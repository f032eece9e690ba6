// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// Lets the kernel of an update read and write moments as the state keeps them
// (KernelTraits::coded_state): the nodes that decode them join the update,
// and so do the nodes that encode the new ones (Cast, RoundStochastic,
// DecodeMoment, EncodeMoment, EncodeSecondMoment). Either all moments of an
// update join, or none does. UpdateAmax, which measures the update by these
// moments, joins, too. If the joined parameter draws (join_masters.h), the
// moments' draws must have the same places. No bit changes. Behind its own
// operands the update then has
//   seed, update    of draws, if a moment draws, with their attributes
//   scale…          of each moment, if they are codes
// and behind its own results the new scales, in the same order, and the result
// of UpdateAmax.
void JoinMoments(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
