// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "base/file.h"
#include "base/printable.h"
#include "cli/calibration_data.h"
#include "cli/commands/commands.h"
#include "cli/json_line.h"
#include "cli/output.h"
#include "cli/output_place.h"
#include "cli/report/choose_recipes.h"
#include "cli/report/text.h"
#include "onnx_fp8/recipe_text.h"
#include "training/run/session_options.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

const Option kSensitivityOptions[] = {
    {"Own", "recipes", OptionKind::kList,
     "recipes to compare, the preferred one first, each with its overrides, as "
     "in tensorwise,rowwise,go:dyn_row_e5m2_p2,mxfp8",
     kComparedRecipes},
    {"Own", "sqnr", OptionKind::kNumber,
     "dB: the least SQNR of a product in FP8", "20"},
    {"Own",
     "batches",
     OptionKind::kInt,
     "batches to measure",
     "4",
     {.min = 1, .max = 4096}},
    {"Own", "first_only", OptionKind::kSwitch,
     "try no recipe for a layer after the one that it gets"},
};

CommandHelp SensitivityHelp() {
  return WithSession(
      {"sensitivity",
       "Which layers stand which FP8 recipe: the noise of each product and the "
       "change of the loss, measured on some batches. `out` is a recipe for "
       "each layer, which `recipe` takes.",
       {{"Options", {"Model", "Own", "Weights", "Output", "JSON", "Machine"}},
        {"Data", {"data", "Samples"}}},
       {"onnx-fp8 sensitivity gpt.onnx --data train.bin --seq-len 128 --loss "
        "cross_entropy -o recipe.json",
        "onnx-fp8 sensitivity model.onnx --data train.npz --loss mse "
        "--recipes tensorwise,rowwise --sqnr 25 --json"}});
}

Json RecipeFile(const Sensitivity& result) {
  Json layers = Json::object();
  for (const LayerSensitivity& layer : result.layers) {
    layers[layer.fqn] = RecipeText(layer.chosen);
  }
  return {{"recipe", "off"}, {"layers", layers}};
}

// Null: no noise.
Json DecibelsJson(double sqnr) {
  return std::isfinite(sqnr) ? Json(sqnr) : Json();
}

Json ToJson(const Sensitivity& result,
            const std::vector<ComparedRecipe>& recipes) {
  Json layers = Json::array();
  for (const LayerSensitivity& layer : result.layers) {
    Json trials = Json::array();
    for (size_t i = 0; i < layer.trials.size(); ++i) {
      Json trial = {{"recipe", recipes[i].name}, {"products", Json::object()}};
      for (const ProductNoise& product : layer.trials[i].products) {
        trial["products"][product.gemm] = {
            {"sqnr", DecibelsJson(product.sqnr)},
            {"operand", product.operand},
            {"operand_sqnr", DecibelsJson(product.operand_sqnr)}};
      }
      trial["loss_change"] = layer.trials[i].loss_change;
      trials.push_back(trial);
    }
    layers.push_back({{"fqn", layer.fqn},
                      {"trials", trials},
                      {"chosen", NameOf(layer.chosen, recipes)},
                      {"reason", layer.reason}});
  }
  return layers;
}

std::string Decibels(double sqnr) {
  return std::isfinite(sqnr) ? Fixed(sqnr, 1) : "no noise";
}

void Print(const Sensitivity& result,
           const std::vector<ComparedRecipe>& recipes) {
  Out() << "SQNR in dB of the products of each layer, the only one in FP8\n";
  Table table(
      {"layer", "recipe", "forward", "dgrad", "wgrad", "loss change", ""});
  for (const LayerSensitivity& layer : result.layers) {
    for (size_t i = 0; i < layer.trials.size(); ++i) {
      const LayerTrial& trial = layer.trials[i];
      std::vector<std::string> cells = {i == 0 ? layer.fqn : "",
                                        recipes[i].name};
      for (const char* gemm : {"forward", "dgrad", "wgrad"}) {
        auto at = std::ranges::find(trial.products, gemm, &ProductNoise::gemm);
        cells.push_back(at == trial.products.end() ? "-" : Decibels(at->sqnr));
      }
      cells.push_back(Number(trial.loss_change, 3));
      cells.push_back(layer.chosen == recipes[i].recipe ? "chosen" : "");
      table.Row(cells);
    }
  }
  table.Print(Out());
  for (const LayerSensitivity& layer : result.layers) {
    if (layer.reason.empty()) continue;
    Out() << Printable(ReasonText(layer, recipes)) << "\n";
  }
}

}  // namespace

int SensitivityCommand(const Arguments& arguments) {
  Flags flags(SensitivityHelp(), kSensitivityOptions);
  if (!flags.Parse(arguments)) return 0;
  flags.Require({"MODEL", "data", "loss"});
  for (const char* other : {"recipe", "recipe_for"}) {
    if (!flags.Given(other)) continue;
    throw OptionError(Concat(Reference(other),
                             " does not go with `recipes`, which names the "
                             "recipes to compare"));
  }
  ApplyMachine(flags);
  const std::string out = flags.Text("out");
  if (!out.empty()) {
    RequireFolderOf(out);
    if (!out.ends_with(".json")) {
      throw OptionError("`out`: expected the name of a .json file, got " + out);
    }
  }
  SensitivitySpec spec;
  spec.options = SessionOptionsOf(flags, flags.Text("MODEL"));
  spec.recipes = ComparedRecipesOf("recipes", flags.List("recipes"));
  spec.sqnr = flags.Number("sqnr");
  spec.batches = flags.Int("batches");
  spec.first_only = flags.On("first_only");
  auto session = TrainingSession::Create(spec.options);
  Notes(session->Notes());
  const Dataset data = CalibrationData(flags, *session);
  session.reset();  // its memory is needed
  const std::optional<Sensitivity> result = MeasureAndShow(spec, data);
  if (!result) return kInterrupted;
  if (!out.empty())
    WriteFileAtomically(out, RecipeFile(*result).dump(1) + "\n");
  if (flags.On("json")) {
    Json json = {{"sqnr", spec.sqnr}, {"loss", result->loss}};
    json["layers"] = ToJson(*result, spec.recipes);
    if (!out.empty()) json["out"] = out;
    Out() << JsonLine(json);
    return 0;
  }
  Print(*result, spec.recipes);
  if (!out.empty()) {
    Out() << Printable(out) << ": recipes of " << result->layers.size()
          << " layers, for --recipe\n";
  }
  return 0;
}

}  // namespace onnx_fp8
