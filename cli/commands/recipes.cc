// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "cli/commands/commands.h"
#include "cli/flags.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {

int Recipes(const Arguments& arguments) {
  Flags flags({"recipes",
               "The recipes that `recipe` knows by name, with what each stands "
               "for; any item may be overridden.",
               {{"Options", {"JSON", "Machine"}}},
               {"onnx-fp8 recipes", "onnx-fp8 recipes --json"}});
  if (!flags.Parse(arguments)) return 0;
  const bool json = flags.On("json");
  using Json = nlohmann::ordered_json;
  Json list = Json::array();
  for (const RecipePreset& preset : RecipePresets()) {
    Recipe recipe = PresetRecipe(preset.name);
    std::string label = RecipeText(recipe);
    list.push_back({{"name", preset.name},
                    {"summary", preset.summary},
                    {"label", label},
                    {"recipe", Json::parse(RecipeJson(recipe))}});
    if (json) continue;
    Out() << preset.name << ": " << preset.summary << "\n";
    if (label != preset.name) Out() << "  " << label << "\n";
  }
  if (json) {
    Out() << JsonLine(list);
    return 0;
  }
  Out() << R"(
Items of a recipe, as in --recipe rowwise,go:dyn_row_e5m2_p2,fa:none
  i, w, go            input, weight, grad_output where they are read first
  i_gw, w_gi, go_gw   the same in wgrad, dgrad, wgrad
                      each: hp (high precision) or
                      {dyn,delN,sta}_{ten,row,blkN,blkNxN}_{e4m3,e5m2}[_p2|_floor]
)" << RecipeSettingsHelp();
  return 0;
}

}  // namespace onnx_fp8
