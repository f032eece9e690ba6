// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Computes nodes on known values while a graph is specialized. The graph layer
// declares it, providers/cpu implements it.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  // True if there is a kernel for the node.
  virtual bool CanEvaluate(const Node& node) const = 0;

  // Returns one tensor per output of the node (undefined for an omitted
  // output). `inputs` has one tensor per input slot, undefined for an omitted
  // one. Errors: the kernel's, naming the node.
  virtual std::vector<Tensor> Evaluate(
      const Node& node, const std::vector<Tensor>& inputs) const = 0;
};

}  // namespace onnx_fp8
