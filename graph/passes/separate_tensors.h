// SPDX-License-Identifier: Apache-2.0
//
// PyTorch's older exporter writes parameters with equal numbers once, and
// leaves Identity(a.weight) → b.weight. In a new model, the statistics of a
// BatchNormalization and the scales of all norms are then one tensor.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Takes tensors apart that the file holds once, so that each can be trained or
// moved by itself:
// - one that is a running statistic in one place and anything else in another.
//   Nodes that share scale, bias, mean and variance are one module, and keep
//   one statistic;
// - the two sides of an Identity between names of parameters, if the tensor is
//   a vector (at most one axis longer than 1) whose elements are all equal: so
//   are new scales and biases, never a table or a layer's weight that was tied
//   on purpose. `all`: whatever the tensor (`tie_copies=false`).
// Other Identities stay: one tensor is trained. Returns notes that name the
// tensors of both kinds.
std::vector<std::string> SeparateTensors(Graph& graph, bool all);

}  // namespace onnx_fp8
