// SPDX-License-Identifier: Apache-2.0
//
// `--recompute auto`: the cheapest values to compute again, until a step fits
// into memory.
#pragma once

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"
#include "graph/passes/live_memory.h"

namespace onnx_fp8 {

// A step whose backward may compute results of its forward again.
struct RecomputeProblem {
  const Graph* graph;
  std::vector<Node*> forward;     // the graph's first nodes, in order
  std::unordered_set<Node*> may;  // nodes of the forward that may run again
  // Values that live to the end, besides the ones that the graph returns.
  std::unordered_set<const Value*> kept = {};
  StepCosts costs;
};

struct AutoRecompute {
  std::unordered_set<Node*> nodes;  // for RecomputeInBackward
  size_t before = 0, after = 0;     // most bytes alive at a time
  double seconds = 0;               // of the nodes that run a second time
  double all_seconds = 0;           // of the step without them
  size_t rounds = 0;                // choices that were tried
};

// Simulates the step in which the nodes `again` run again. The result holds
// every one of these nodes whose results the backward reads.
AutoRecompute Weigh(const RecomputeProblem& problem,
                    const std::unordered_set<Node*>& again);

// The most bytes alive at a time (live_memory.h) in that step.
size_t PeakWith(const RecomputeProblem& problem,
                const std::unordered_set<Node*>& again);

// Chooses nodes so that at most `budget` bytes are alive at any time, or as few
// as it can reach, for few seconds. Greedy: at the time when most bytes are
// alive it drops the values that free the most bytes for a second of their
// computation. Nodes that are the same in all layers (repeated_blocks.h) are
// chosen together, or every second or fourth of them. The memory is simulated
// after each choice, and a choice that does not help is taken back. At the end
// it takes back all that the budget does not need. The result depends on
// nothing but the arguments.
AutoRecompute ChooseToFit(const RecomputeProblem& problem, size_t budget);

}  // namespace onnx_fp8
