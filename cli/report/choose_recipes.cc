// SPDX-License-Identifier: Apache-2.0
#include "cli/report/choose_recipes.h"

#include <chrono>
#include <cmath>
#include <map>
#include <string_view>

#include "base/check.h"
#include "base/number_text.h"
#include "cli/interrupt.h"
#include "cli/report/progress.h"
#include "onnx_fp8/recipe_text.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {

std::vector<ComparedRecipe> ComparedRecipesOf(
    const char* option, const std::vector<std::string>& words) {
  std::vector<std::string> texts;
  for (const std::string& word : words) {
    if (word.find(':') != std::string::npos && !texts.empty()) {
      texts.back() += "," + word;
    } else {
      texts.push_back(word);
    }
  }
  std::vector<ComparedRecipe> recipes;
  for (const std::string& text : texts) {
    recipes.push_back({text, Blame(option, [&] { return ParseRecipe(text); })});
  }
  return recipes;
}

std::string NameOf(const Recipe& recipe,
                   const std::vector<ComparedRecipe>& recipes) {
  for (const ComparedRecipe& named : recipes) {
    if (named.recipe == recipe) return named.name;
  }
  return RecipeText(recipe);
}

std::string ReasonText(const LayerSensitivity& layer,
                       const std::vector<ComparedRecipe>& recipes) {
  return Concat(layer.fqn, ": ", NameOf(layer.chosen, recipes), ", because ",
                layer.reason);
}

std::string RecipeCounts(const Sensitivity& result,
                         const std::vector<ComparedRecipe>& recipes) {
  std::map<std::string, int64_t> counts;
  for (const LayerSensitivity& layer : result.layers) {
    ++counts[NameOf(layer.chosen, recipes)];
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    text += Concat(text.empty() ? "`recipe` auto: " : ", ", name, " for ",
                   count, count == 1 ? " layer" : " layers");
  }
  return text;
}

std::optional<Sensitivity> MeasureAndShow(SensitivitySpec spec,
                                          const Dataset& data) {
  using Clock = std::chrono::steady_clock;
  Progress progress;
  CatchInterrupts();
  const auto begin = Clock::now();
  spec.progress = [&](int64_t done, int64_t total) {
    const std::chrono::duration<double> seconds = Clock::now() - begin;
    const double left = seconds.count() / static_cast<double>(done) *
                        static_cast<double>(total - done);
    progress.Case({"noise of recipes and layers", static_cast<size_t>(done + 1),
                   static_cast<size_t>(total), done > 0 ? left : -1});
    return !Interrupted();
  };
  return MeasureSensitivity(spec, data);
}

std::optional<double> AutoSqnr(const std::string& recipe) {
  if (recipe == "auto") return SensitivitySpec().sqnr;
  constexpr std::string_view kBegin = "auto:sqnr=";
  if (!recipe.starts_with(kBegin)) return std::nullopt;
  double sqnr = 0;
  if (!ReadNumber(std::string_view(recipe).substr(kBegin.size()), &sqnr) ||
      !std::isfinite(sqnr)) {
    throw OptionError(
        "`recipe`: expected auto or auto:sqnr=X with a number of "
        "dB, got \"" +
        recipe + "\"");
  }
  return sqnr;
}

}  // namespace onnx_fp8
