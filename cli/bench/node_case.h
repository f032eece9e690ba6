// SPDX-License-Identifier: Apache-2.0
//
// Graphs of one node, for timing it alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "providers/kernel.h"

namespace onnx_fp8 {

struct NodeOperand {
  enum Fill {
    kRandom,   // from [-1, 1)
    kValue,    // `value` everywhere
    kIndices,  // from 0 to `value` - 1
  };
  Shape shape;
  Fill fill = kRandom;
  DType dtype = DType::kFloat;
  double value = 0;
};

struct NodeCase {
  std::string group, what, op, domain;
  std::vector<NodeOperand> operands;
  size_t results = 1;
  Attributes attributes = {};
  std::string shape = "";  // for people; "": operand 0's
};

// The node of this case. Its operands are constants, and nothing is an output.
// If `dtype` has 16 bits, random operands and results are kept in it where the
// kernels of all `registries` can do so, as in a training step of that dtype.
// Errors: a registry has no kernel; operands that do not fit.
std::shared_ptr<Graph> MakeNodeGraph(
    const NodeCase& node, DType dtype,
    const std::vector<const KernelRegistry*>& registries);

}  // namespace onnx_fp8
