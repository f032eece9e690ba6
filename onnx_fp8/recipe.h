// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "onnx_fp8/dtype.h"

namespace onnx_fp8 {

// How the scale of a quantised tensor comes about.
enum class Scaling {
  kDynamic,  // from this very tensor's amax
  kDelayed,  // from the amax history of earlier steps
};

struct TensorRecipe {
  DType dtype = DType::kE4M3;
  Scaling scaling = Scaling::kDynamic;
};

// How the GEMMs of linear layers run in FP8. Read once, by Fp8Rewrite; nothing
// that runs knows recipes. Defaults as torchao and TransformerEngine have them
// (e4m3 for input and weight, e5m2 for the gradient of the output).
struct Recipe {
  std::string name = "off";
  bool enabled = false;
  TensorRecipe input = {DType::kE4M3, Scaling::kDynamic};
  TensorRecipe weight = {DType::kE4M3, Scaling::kDynamic};
  TensorRecipe grad_output = {DType::kE5M2, Scaling::kDynamic};
  // Delayed scaling: steps of amax kept; scale from their maximum or from the
  // newest; the scale is multiplied by 2^margin.
  int64_t amax_history = 16;
  bool most_recent = false;
  int64_t margin = 0;
  // Linear layers whose FQN contains one of these stay in high precision.
  std::vector<std::string> filter_fqns;

  bool Filters(const std::string& fqn) const;
};

// "off", "tensorwise" (dynamic) or "delayed". Errors: another name.
Recipe ParseRecipe(const std::string& name);

// All names that ParseRecipe knows.
std::vector<std::string> RecipeNames();

}  // namespace onnx_fp8
