// SPDX-License-Identifier: Apache-2.0
#include "cli/old_flags.h"

#include "base/check.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

struct OldFlag {
  const char* flag;
  const char* item;
  void (*copy)(const Recipe& from, Recipe& to);
};

constexpr OldFlag kOldFlags[] = {
    {"--amax-history", "history",
     [](const Recipe& from, Recipe& to) {
       to.amax_history = from.amax_history;
     }},
    {"--amax-algo", "algo",
     [](const Recipe& from, Recipe& to) { to.most_recent = from.most_recent; }},
    {"--margin", "margin",
     [](const Recipe& from, Recipe& to) { to.margin = from.margin; }},
    {"--scale-dtype", "scales",
     [](const Recipe& from, Recipe& to) { to.e8m0_scales = from.e8m0_scales; }},
};

}  // namespace

void TranslateOldFlags(FlagMap* flags) {
  // The recipe "off" accepts any setting and ignores it.
  std::string settings = "off";
  std::vector<const OldFlag*> found;
  for (const OldFlag& old : kOldFlags) {
    auto it = flags->find(old.flag);
    if (it == flags->end()) continue;
    bool one =
        it->second.size() == 1 && it->second[0].find(',') == std::string::npos;
    Check(one, old.flag, ": expected one value");
    settings += Concat(",", old.item, ":", it->second[0]);
    found.push_back(&old);
    flags->erase(it);
  }
  if (found.empty()) return;
  Recipe given = ParseRecipe(settings);
  auto translate = [&](const std::string& text) {
    Recipe recipe = ParseRecipe(text);
    for (const OldFlag* old : found) old->copy(given, recipe);
    return RecipeText(recipe);
  };
  std::vector<std::string>& recipe = (*flags)["--recipe"];
  recipe = {translate(recipe.empty() ? "off" : recipe[0])};
  auto others = flags->find("--recipe-for");
  if (others == flags->end()) return;
  for (std::string& word : others->second) {
    size_t split = word.find('=');
    Check(split != std::string::npos, "--recipe-for: expected PATTERN=RECIPE, ",
          "got \"", word, "\"");
    word = word.substr(0, split + 1) + translate(word.substr(split + 1));
  }
}

}  // namespace onnx_fp8
