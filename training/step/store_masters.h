// SPDX-License-Identifier: Apache-2.0
//
// The last pass of a step's graph whose weights are kept as bfloat16s
// (`master`). Until then they are floats, so no other pass knows of it.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/stochastic_rounding.h"
#include "graph/graph.h"

namespace onnx_fp8 {

struct MasterStorage {
  DType correction = DType::kUndefined;  // kUndefined: no corrections
  // The wish for a state's name → the name that it gets.
  std::function<std::string(const std::string&)> state_name;
  // Of the draws, without a correction, if the graph updates weights: the
  // places of a weight's elements, the seed, and the number of the update.
  std::function<ElementPlaces(const std::string& weight)> places;
  Value* seed = nullptr;
  Value* number = nullptr;
};

// Each of `weights` (initializers of float) becomes a bfloat16, with a
// correction beside it if something reads that. A node that reads a weight gets
// a decoded copy of its own, which lives no longer than the node needs it. A
// RoundTo to bfloat16 becomes a Cast of the bfloat16, and of rows that a Gather
// looks up only these are decoded. The next value of a weight is encoded as
// soon as it is known. The initializers hold no numbers: a session has them,
// and StepFile puts them in.
void StoreMasters(Graph& graph, const std::vector<Value*>& weights,
                  const MasterStorage& storage);

}  // namespace onnx_fp8
