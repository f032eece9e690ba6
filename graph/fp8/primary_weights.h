// SPDX-License-Identifier: Apache-2.0
//
// FP8 copies of weights that live from one step to the next, as codes and
// scales.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

struct PrimaryWeights {
  // Makes the copies from the other state. Its state has their names. Null: the
  // step has none.
  std::unique_ptr<Graph> maker;
  std::vector<std::string> copies;  // state: codes, scales, amaxes
  size_t weights = 0;               // of which there are codes
  size_t bytes = 0;                 // of all copies
};

// Turns the FP8 copies of weights in a whole step into state. The step reads
// the copies, and makes the next ones from the next weights and scales: behind
// all other nodes or, with `early`, behind the updates of these weights
// (RunEarly), if the copies need no collective. A skipped step leaves weights
// as they are, and so it leaves the copies. Only the maker makes the copies of
// weights that no step changes. `name` gives a state its name, from a hint.
// REQUIRES: known dtypes and shapes.
PrimaryWeights KeepWeightCodes(
    Graph& step, const std::function<std::string(const std::string&)>& name,
    bool early);

}  // namespace onnx_fp8
