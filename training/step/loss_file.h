// SPDX-License-Identifier: Apache-2.0
// A loss of one's own: a small model from outputs and labels to one number.
#pragma once

#include <string>
#include <vector>

#include "graph/graph.h"
#include "onnx_fp8/budgets.h"

namespace onnx_fp8 {

struct LossFile {
  std::string output;               // the graph output that is the loss
  std::vector<std::string> reads;   // outputs of the model that it reads
  std::vector<std::string> labels;  // graph inputs that it adds
};

// Adds the nodes of the model in `path` to `graph`, its output to the graph's
// outputs. Its inputs are found by name: outputs of the graph, else inputs of
// the graph, else labels, which become inputs. Its weights are constants.
//
// Errors, which name the file: ReadModel's; a training step; more than one
// output, or one that is no single float; no input that is an output of the
// graph; an input of another type; If, Loop and Scan; the name of a label that
// another value has.
LossFile AddLossFile(Graph& graph, const std::string& path,
                     const Budgets& budgets);

}  // namespace onnx_fp8
