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

// Lets a whole step read the FP8 copies of its weights as state, and make the
// next ones from the next weights and scales: behind all other nodes or, with
// `early`, behind the updates of these weights (RunEarly), if no
// collective is needed for them. A step that is skipped leaves weights as they
// are, and so the copies. Copies of what no step changes are made by the maker
// alone. `name`: the name of a state, from a hint. REQUIRES: known dtypes and
// shapes.
PrimaryWeights KeepWeightCodes(
    Graph& step, const std::function<std::string(const std::string&)>& name,
    bool early);

}  // namespace onnx_fp8
