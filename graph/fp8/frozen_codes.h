// SPDX-License-Identifier: Apache-2.0
//
// FP8 codes and scales of weights that never move: a step reads them as state,
// and no float of the weight.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// The codes, scales and amax that one quantizer makes of frozen weights.
struct FrozenCodes {
  // A graph that makes the copies. Its state has the names in `copies`.
  std::shared_ptr<Graph> maker;
  std::vector<std::string> weights;
  std::vector<std::string> copies;  // state: codes, scales, amax
};

// Turns the results of quantizers that depend on frozen weights alone
// (FrozenAlone) into state that no step changes. The names of this state say
// how it is made, so all graphs of a session share it. `name` gives a state its
// name, from a hint. Returns the makers, sorted by their weights. REQUIRES:
// known dtypes and shapes, nodes sorted, kernels not chosen yet.
std::vector<FrozenCodes> KeepFrozenCodes(
    Graph& step, const std::function<std::string(const std::string&)>& name);

}  // namespace onnx_fp8
