// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

// One node computes a loss and the gradient of its scores: a CrossEntropy and
// the CrossEntropyGrad of the same scores and labels become a
// CrossEntropyWithGrad, which reads each row of the scores once and may write
// the gradient over it.
// Both stay if the gradient depends on the loss, or if another node reads the
// lse. Providers without such a kernel keep their graph.
void JoinLossGradient(Graph& graph, const KernelRegistry& kernels);

}  // namespace onnx_fp8
