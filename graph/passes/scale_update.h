// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "graph/graph.h"
#include "graph/passes/fp8_plan.h"

namespace onnx_fp8 {

// The state tensor of the plan's scales, added when it is first asked for. Its
// size is known when all slots are: AddScaleState sets it.
Value* AddScales(Graph& graph, Fp8Plan* plan);

// Adds the state of plan.slots to a graph: scales, 0 where they are delayed,
// and if there are delayed ones their history and q_max.
void AddScaleState(Graph& graph, const Recipe& recipe, Fp8Plan* plan);

// Amaxes of what none of `roots`, the results of the step, looks at because of
// a flag's value (graph/needed_when.h) become 0 then.
void DropIdleAmaxes(Graph& graph, const std::vector<const Value*>& roots,
                    Fp8Plan* plan);

// All amaxes of this step as one vector, in the order of plan.labels: slots (0
// for one that this graph lacks), then the others. Null if nothing is
// quantised.
Value* AmaxVector(Graph& graph, const Fp8Plan& plan);

// The amaxes of the slots, in their order, and then the largest of all others:
// as long in one graph as in another one that has more or fewer tensors to
// quantise.
Value* KeptAmaxes(Graph& graph, const Fp8Plan& plan);

// Adds the one UpdateScale node that moves all delayed scales, and binds
// history and scale to its results; none if all are static. `amax` begins with
// those of the slots; `ok` (bool, rank 0) is false if the step is skipped.
void AttachScaleUpdate(Graph& graph, const Recipe& recipe, const Fp8Plan& plan,
                       Value* amax, Value* ok);

}  // namespace onnx_fp8
