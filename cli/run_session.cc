// SPDX-License-Identifier: Apache-2.0
#include "cli/run_session.h"

#include <filesystem>

#include "base/check.h"
#include "base/number_text.h"
#include "onnx_fp8/recipe_text.h"
#include "training/run/session_options.h"
#include "training/step/adapters.h"
#include "training/step/given_weights.h"

namespace onnx_fp8 {

CommandHelp TrainHelp() {
  CommandHelp help = WithSession(
      {"train",
       "Train an exported model.",
       {{"", {"Model"}},
        {"Data", {"Files", "Samples", "Order", "Seed"}},
        {"Steps", {"Steps", "Accumulation", "Saves", "Dump", "Evaluation"}},
        {"Ranks", {"Ranks", "Job"}},
        {"Optimizer", {"Optimizer", "Schedule"}}},
       {"onnx-fp8 train mlp.onnx --data digits.npz --loss cross_entropy "
        "--epochs "
        "10 --out runs/digits --memory-report --profile-summary",
        "onnx-fp8 train gpt.onnx --data train.bin --val-data val.bin --seq-len "
        "128 --loss cross_entropy --steps 1000 --recipe tensorwise "
        "--filter-fqns lm_head --out runs/gpt",
        "onnx-fp8 train --resume --out runs/gpt --recipe delayed"}});
  help.sections.push_back({"Machine", {"Machine"}});
  help.sections.push_back(
      {"Run",
       {"Weights", "Start", "Run", "JSON", "Memory", "Profile", "Timeline"}});
  return help;
}

RunSettings KeptFlags(FlagMap flags) {
  for (const Option& option : AllOptions()) {
    if (option.more.of_one_start) flags.erase(FlagOf(option.name));
  }
  return flags;
}

void ResolveFiles(const OptionSet& options, FlagMap* saved) {
  auto at = saved->find("--recipe");
  if (at != saved->end() && at->second[0].ends_with(".json")) {
    const LayerRecipes all = ParseLayerRecipes(at->second[0]);
    at->second = {RecipeText(all.recipe)};
    // The first glob that matches counts, so the flag's own globs stay first.
    for (const auto& [glob, recipe] : all.layers) {
      (*saved)["--recipe-for"].push_back(glob + "=" + RecipeText(recipe));
    }
  }
  if (at = saved->find("--recipe-for"); at != saved->end()) {
    for (std::string& word : at->second) {
      const size_t name = word.find('=') + 1;
      if (!word.ends_with(".json")) continue;
      word = word.substr(0, name) + RecipeText(ParseRecipe(word.substr(name)));
    }
  }
  at = saved->find("--auto-filter");
  if (at != saved->end() && at->second[0] != "h100" && at->second[0] != "") {
    const auto path = std::filesystem::absolute(at->second[0]);
    at->second = {path.lexically_normal().string()};
  }
  if (at = saved->find("--lora"); at != saved->end() && at->second[0] != "") {
    LoraSpec spec = ResolveLora(at->second[0]);
    if (!spec.folder.empty()) {
      spec.folder =
          std::filesystem::absolute(spec.folder).lexically_normal().string();
    }
    at->second = {LoraText(spec)};
  }
  if (at = saved->find("--class-weights"); at != saved->end()) {
    at->second.clear();
    for (float weight : ClassWeightsOf(options)) {
      at->second.push_back(NumberText(weight));
    }
  }
}

std::string CheckpointFolder(const std::string& folder, bool best) {
  if (!best) return folder;
  Check(RunFolder(BestFolder(folder)).HasCheckpoint(), "[", folder,
        "] holds no best checkpoint: `train()` with `save_best` keeps one");
  return BestFolder(folder);
}

RunConfig LoadRun(const RunFolder& folder) {
  RunConfig config = folder.Load();
  config.settings = KeptFlags(std::move(config.settings));
  for (const auto& [option, file] : config.others) {
    config.settings[FlagOf(option)] = {file};
  }
  return config;
}

void FillFrom(const RunConfig& config, Flags& flags) {
  try {
    flags.RequireKnown(config.settings);
    flags.Fill(config.settings);
  } catch (const OptionError& error) {
    Fail("[", config.file, "] holds a flag that does not fit: ", error.what());
  }
}

SessionOptions RunSessionOptions(const RunConfig& config,
                                 const Budgets& budgets) {
  Flags flags(TrainHelp());
  FillFrom(config, flags);
  // Only the checkpoint's weights and scales count.
  flags.Forget("scales");
  try {
    SessionOptions options = SessionOptionsOf(flags, config.model);
    LeaveWeights(&options);
    options.budgets = budgets;
    return options;
  } catch (const OptionError& error) {
    Fail("[", config.file, "] holds a flag that does not fit: ", error.what());
  }
}

}  // namespace onnx_fp8
