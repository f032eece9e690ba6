// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "graph/fp8/gemm_decision.h"
#include "graph/fp8/scale_slots.h"
#include "graph/graph.h"

namespace onnx_fp8 {

// Results of the FP8 rewrite of a graph.
struct Fp8Plan {
  std::vector<GemmDecision> decisions;
  std::vector<ScaleSlot> slots;  // delayed and static scaling only
  // The amaxes that belong to no slot, each of rank 0. Labels of slots, then of
  // these amaxes, in this order: "blocks.0.fc.weight forward input".
  std::vector<Value*> amaxes;
  std::vector<std::string> labels;
  // State: slot i is entry i of scale (N) and column i of history (H,N). All
  // are null without slots; history and q_max are null without delayed slots.
  Value* scale = nullptr;
  Value* history = nullptr;
  Value* q_max = nullptr;
};

// The state tensor of the plan's scales, added on the first call. AddScaleState
// sets its size when all slots are known.
Value* AddScales(Graph& graph, Fp8Plan* plan);

// Adds the state of plan.slots to a graph: scales (0 for delayed ones), and for
// delayed slots their history and q_max.
void AddScaleState(Graph& graph, const Recipe& recipe, Fp8Plan* plan);

// Makes an amax 0 if, because of a flag's value (graph/needed_when.h), none of
// `roots`, the results of the step, reads its tensor.
void DropIdleAmaxes(Graph& graph, const std::vector<const Value*>& roots,
                    Fp8Plan* plan);

// All amaxes of this step as one vector, in the order of plan.labels: slots (0
// for a slot that this graph lacks), then the others. Null if nothing is
// quantized.
Value* AmaxVector(Graph& graph, const Fp8Plan& plan);

// The amaxes of the slots, in their order, and then the largest of all others.
// The length is the same in graphs that quantize more or fewer tensors.
Value* KeptAmaxes(Graph& graph, const Fp8Plan& plan);

// Adds one UpdateScale node that moves all delayed scales, and binds history
// and scale to its results; adds nothing if all scales are static. `amax`
// begins with the slots' amaxes; `ok` (bool, rank 0) is false if the step is
// skipped.
void AttachScaleUpdate(Graph& graph, const Recipe& recipe, const Fp8Plan& plan,
                       Value* amax, Value* ok);

}  // namespace onnx_fp8
