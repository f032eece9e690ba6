// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "graph/parameter_names.h"

namespace onnx_fp8 {

// Whether the node normalizes by its batch and moves the running statistics.
bool NormalizesByBatch(const Node& node);

// The running mean or variance of a BatchNormalization.
struct BatchStatistic {
  Value* value;     // the initializer that holds it
  std::string key;  // its name in PyTorch's state_dict
  bool moves;       // a training step gives it a new value
  // For a mean in a module with PyTorch's names, state_dict's name for the
  // number of batches that moved it; else "".
  std::string count_key;
};

// The statistics of all BatchNormalizations, also in subgraphs, each once, in
// the order of the nodes. `names` and the file's record tell keys; a statistic
// without one has the name in the file, or `running_mean` or `running_var`
// behind the module path of its node if an exporter made its name up.
// Statistics that the file computes, and those without any such name, are left
// out.
std::vector<BatchStatistic> BatchStatistics(const Graph& graph,
                                            const ParameterNames& names);

}  // namespace onnx_fp8
