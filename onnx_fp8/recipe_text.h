// SPDX-License-Identifier: Apache-2.0
//
// Recipes as text and as JSON. The text is torchao's label, with some
// additions:
//
//   i:dyn_ten_e4m3,w:dyn_ten_e4m3,go:del16_ten_e5m2
//
// i, w, go: input, weight and grad_output, in the first GEMM that reads them;
// i_gw, w_gi, go_gw: the same in wgrad, dgrad and wgrad, where that differs.
// Each is hp (high precision) or SCALING_GRANULARITY_FORMAT, with _p2 or _floor
// if scales are rounded:
//   scaling      dyn | delN (a history of N steps) | sta
//   granularity  ten | row | blkN (1 x N) | blkNxN
//   format       e4m3 | e5m2
// Settings follow where they are not the default, as in margin:-1,algo:max; the
// table in recipe_text.cc has all, RecipeSettingsHelp() prints it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "onnx_fp8/recipe.h"

namespace onnx_fp8 {

// Takes the name of a preset; a preset with items that override it
// ("rowwise,go:dyn_row_e5m2_p2"); the items alone; the path of a .json file; or
// JSON. A second use that equals the first stays equal to it. The item
// round:none|p2|floor, the rounding of all operands, is read but never printed.
// Errors: what is wrong and what was expected.
Recipe ParseRecipe(const std::string& text);

// Recipes of a model's layers.
struct LayerRecipes {
  Recipe recipe;  // of layers that no glob matches
  // Globs, as in GemmFilter, and their recipes.
  std::vector<std::pair<std::string, Recipe>> layers;
};

// As ParseRecipe; JSON may also have "layers": {"GLOB": "RECIPE", …}, each with
// the name of a preset and items, or items alone.
LayerRecipes ParseLayerRecipes(const std::string& text);

// The items, "off" without any. ParseRecipe makes an equal recipe of it, except
// for the unused fields of a high-precision operand.
std::string RecipeText(const Recipe& recipe);

// The same as JSON: {"input": "dyn_ten_e4m3", …, "amax_history": 16, …}, all
// keys. ParseRecipe accepts fewer keys, and "recipe": the preset to override.
std::string RecipeJson(const Recipe& recipe);

// One line for each setting, for help texts.
std::string RecipeSettingsHelp();

}  // namespace onnx_fp8
