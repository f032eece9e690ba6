// SPDX-License-Identifier: Apache-2.0
//
// Recipes of layers by measurement, with progress on the terminal.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "onnx_fp8/sensitivity.h"

namespace onnx_fp8 {

// The recipes that are compared if the user names none, the preferred one
// first.
inline constexpr char kComparedRecipes[] = "tensorwise,rowwise,blockwise,mxfp8";

// Recipes from words without commas: a word with a colon overrides an item of
// the recipe before it. Errors: OptionError that names `option`.
std::vector<ComparedRecipe> ComparedRecipesOf(
    const char* option, const std::vector<std::string>& words);

// The recipe in the words of the user, or its items.
std::string NameOf(const Recipe& recipe,
                   const std::vector<ComparedRecipe>& recipes);

// "fc1.weight: off, because tensorwise: forward has 3.1 dB".
std::string ReasonText(const LayerSensitivity& layer,
                       const std::vector<ComparedRecipe>& recipes);

// "recipe auto: tensorwise for 10 layers, off for 2".
std::string RecipeCounts(const Sensitivity& result,
                         const std::vector<ComparedRecipe>& recipes);

// MeasureSensitivity with a progress line. Ctrl-C ends it: nullopt.
std::optional<Sensitivity> MeasureAndShow(SensitivitySpec spec,
                                          const Dataset& data);

// The least SQNR in dB that the recipe "auto" or "auto:sqnr=X" asks of each
// product. Nullopt: the recipe is another one. Errors: OptionError.
std::optional<double> AutoSqnr(const std::string& recipe);

}  // namespace onnx_fp8
