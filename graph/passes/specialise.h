// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <string>

#include "graph/evaluator.h"
#include "graph/graph.h"

namespace onnx_fp8 {

struct SpecialiseReport {
  int64_t nodes_before = 0;  // subgraphs included
  int64_t nodes_after = 0;
  int64_t folded = 0;  // computed here, once, instead of in every step
  double seconds = 0;  // that it took
};

// The graph for these input shapes (by input name, all sizes known): every
// value has a concrete shape, shape arithmetic and control flow are gone, and
// sequences have become plain values. One walk in topological order: what
// depends on shapes and constants only is computed (up to 16 MiB per value);
// Shape of a known shape is a constant; If with a known condition is inlined
// (of one that depends on data both branches are, and Where selects), Loop and
// Scan with a known trip count are unrolled. Parameters and state (Value::role)
// are never folded. Names of inputs, outputs and initializers stay. Errors: an
// input without shape or of another rank than the model's, a value whose shape
// stays open, naming its node.
std::unique_ptr<Graph> Specialise(const Graph& graph,
                                  const std::map<std::string, Shape>& shapes,
                                  const Evaluator& evaluator,
                                  SpecialiseReport* report = nullptr);

}  // namespace onnx_fp8
