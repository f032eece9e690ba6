// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "graph/graph.h"

namespace onnx_fp8 {

// A graph without inputs that computes the values with which training begins
// (TrainingInfoProto.initialization).
struct Initialization {
  std::shared_ptr<Graph> graph;
  // Initializer of the model → output of the graph (initialization_binding).
  std::map<std::string, std::string> bindings;
};

}  // namespace onnx_fp8
