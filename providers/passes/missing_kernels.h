// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <utility>

#include "graph/graph.h"

namespace onnx_fp8 {

// Nodes that a provider has no kernel for.
class MissingKernels {
 public:
  void Add(const Node& node);
  // Errors: there are any; one message lists them by op.
  void CheckNone() const;

 private:
  // Nodes of an op, and where the first one is.
  std::map<std::string, std::pair<size_t, std::string>> ops_;
};

}  // namespace onnx_fp8
