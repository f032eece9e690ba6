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
  // initialization_binding: maps the name of an initializer of the model to the
  // output of `graph` that is its first value.
  std::map<std::string, std::string> bindings;
};

}  // namespace onnx_fp8
