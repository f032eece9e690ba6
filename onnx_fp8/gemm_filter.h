// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "onnx_fp8/recipe.h"
#include "onnx_fp8/speed_table.h"

namespace onnx_fp8 {

// Which linear layers run in FP8, and by which recipe. A layer is known by its
// weight's FQN, the weight's name in the file, the FQN without its last word
// and the module path of the node. Every pattern must match a layer.
struct GemmFilter {
  // Layers with one of these in a name stay in high precision.
  std::vector<std::string> filter_fqns;
  // Globs. A layer stays in high precision if it matches `exclude`, or if
  // `include` is not empty and the layer matches none of it.
  std::vector<std::string> include, exclude;
  // Globs and recipes; the first glob that matches sets the layer's recipe.
  std::vector<std::pair<std::string, Recipe>> recipes;
  // A layer that is left stays in high precision if FP8 does not make it faster
  // by this table; null: all are taken.
  std::shared_ptr<const SpeedTable> speeds;
};

}  // namespace onnx_fp8
