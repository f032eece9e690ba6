// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/recipe.h"

#include <algorithm>

#include "onnx_fp8/check.h"

namespace onnx_fp8 {

bool Recipe::Filters(const std::string& fqn) const {
  return std::ranges::any_of(filter_fqns, [&](const std::string& part) {
    return fqn.find(part) != std::string::npos;
  });
}

Recipe ParseRecipe(const std::string& name) {
  Recipe recipe;
  recipe.name = name;
  if (name == "off") return recipe;
  recipe.enabled = true;
  if (name == "tensorwise") return recipe;
  Check(name == "delayed", "expected recipe off, tensorwise or delayed, got \"",
        name, "\"");
  for (TensorRecipe* t : {&recipe.input, &recipe.weight, &recipe.grad_output}) {
    t->scaling = Scaling::kDelayed;
  }
  return recipe;
}

std::vector<std::string> RecipeNames() {
  return {"off", "tensorwise", "delayed"};
}

}  // namespace onnx_fp8
