// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <unordered_set>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Nodes of a step in which the loss has the gradient `seed`: the first node
// that depends on it and all that follow are the backward, the others the
// forward, in order. REQUIRES: sorted.
struct StepHalves {
  StepHalves(Graph& graph, const Value* seed);

  std::vector<Node*> forward;
  std::unordered_set<Node*> backward;
};

// What the backward computes again instead of reading what the forward kept.
struct RecomputeSpec {
  // "blocks": the layers that repeat (repeated_blocks.h); of each block what
  // the next one reads is kept. Otherwise globs: the nodes of the modules that
  // match one, and reshapes and copies of their results, in whatever module
  // these are. Empty, or "none": nothing.
  std::vector<std::string> what;
  // Whether copies of weights are made again, too: values that depend on
  // weights alone and that a chosen node reads. Not for a graph that runs
  // several times between two updates, where they are made once. (A weight
  // that is kept as a bfloat16 is decoded again there, too: each reader has a
  // decoded copy of its own.)
  bool copies = true;
  // Whether that holds for FP8 codes, too. Not for codes that live from step to
  // step.
  bool codes = true;
};

// Nodes of the forward that the backward may compute again. Nodes that draw
// random numbers, collectives and nodes that don't depend on weights, such as
// masks, stay out. `copies`, `codes`: as RecomputeSpec's. REQUIRES: roles set.
std::unordered_set<Node*> NodesThatMayRunAgain(
    const std::vector<Node*>& forward, bool copies, bool codes = true);

struct RecomputeChoice {
  std::unordered_set<Node*> nodes;
  std::string text;  // for the user; "" if the spec chooses nothing
};

// Nodes of the forward that the spec chooses, of NodesThatMayRunAgain. Errors:
// a glob that matches no module. REQUIRES: roles set, concrete shapes.
RecomputeChoice ChooseRecomputed(const RecomputeSpec& spec, const Graph& graph,
                                 const std::vector<Node*>& forward);

// Results of the nodes `again` no longer live from the forward to the backward:
// the backward computes them again, just before it first reads them. A node
// that only the backward reads moves there; of another one the backward gets a
// clone, which measures no amax. Clones and moved nodes join `backward`. All
// results keep their bits. REQUIRES: nodes of `again` draw no random numbers,
// are no collectives and change no state. The graph is sorted afterwards.
void RecomputeInBackward(Graph& graph, const std::unordered_set<Node*>& again,
                         std::unordered_set<Node*>* backward);

}  // namespace onnx_fp8
