// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/ep_options.h"

#include <algorithm>

#include "onnx_fp8/option_names.h"
#include "onnx_fp8/recipe_text.h"
#include "training/run/session_options.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

// The options that a TrainingSession has, too.
constexpr const char* kShared[] = {"recipe",  "scales",  "filter_fqns",
                                   "include", "exclude", "loss_chunk",
                                   "threads"};

const Option kEpOnly[] = {
    {"ONNX Runtime", "device", OptionKind::kText, "the provider of the nodes"},
    {"ONNX Runtime",
     "pool",
     OptionKind::kChoice,
     "whose threads run",
     "session",
     {.choices = "session|own"}},
};

OptionSet EpSet() {
  OptionSet options;
  for (const Option& option : AllOptions()) {
    const bool shared = std::ranges::count(kShared, std::string(option.name));
    if (shared) options.Declare(option);
  }
  for (const Option& option : kEpOnly) options.Declare(option);
  return options;
}

std::string EpName(const std::string& name) {
  return Concat("[option ep.", kEpName, ".", name, "]");
}

// A session of ONNX Runtime keeps no scales between two runs: they are dynamic,
// or static with a file that holds them.
Fp8Spec StatelessSpec(const OptionSet& options) {
  Fp8Spec spec = {RecipeOf(options), {}};
  CheckRecipe(spec.recipe, "`recipe`");
  Check(!spec.recipe.Uses(Scaling::kDelayed),
        "`recipe`: expected a recipe with dynamic or static scales, got \"",
        options.Text("recipe"),
        "\": a session moves no scales from run to run (recipe static takes "
        "the scales of a trained run, which the option scales names)");
  spec.filter.filter_fqns = options.List("filter_fqns");
  spec.filter.include = options.List("include");
  spec.filter.exclude = options.List("exclude");
  const std::string scales = options.Text("scales");
  const bool wanted = spec.recipe.Uses(Scaling::kStatic);
  if (!scales.empty()) {
    spec.scales = Blame("scales", [&] { return ReadStaticScales(scales); });
  }
  Check(wanted || scales.empty(),
        "`scales`: expected a recipe with static scales, as static, got \"",
        RecipeText(spec.recipe), "\"");
  Check(!wanted || !scales.empty(),
        "`recipe`: expected the option scales beside a recipe with static "
        "scales: a file of `calibrate()`, or the folder of a run");
  return spec;
}

}  // namespace

std::string InEpOptions(const std::string& message) {
  static constexpr HostNames kNames = {
      [](const std::string& name, const std::string& value) {
        if (EpSet().Find(name) && value.empty()) return EpName(name);
        return Reference(name, value);
      },
      [](const std::string& name) { return "`onnx-fp8 " + name + "`"; }};
  std::string text = NamedBy(kNames, message);
  // A message that begins with the option: "[file] expected …" is the form.
  const size_t end = text.find(']');
  if (message.starts_with('`') && text.starts_with('[') &&
      text.compare(end, 2, "]:") == 0) {
    text.erase(end + 1, 1);
  }
  return text;
}

EpOptions ParseEpOptions(
    const std::vector<std::pair<std::string, std::string>>& entries) {
  OptionSet given = EpSet();
  try {
    for (const auto& [name, value] : entries) {
      if (given.Find(name)) {
        given.Set(name, value);
        continue;
      }
      std::string known;
      for (const Option& option : given.options()) {
        known += Concat(known.empty() ? "" : ", ", option.name);
      }
      Fail(EpName(name), " expected one of ", known);
    }
    EpOptions options = {
        .spec = StatelessSpec(given),
        .threads = {.count = static_cast<int>(given.Int("threads")),
                    .own = given.Text("pool") == "own"}};
    if (given.Has("device")) options.device = given.Text("device");
    if (given.Has("loss_chunk")) options.loss_chunk = given.Int("loss_chunk");
    Blame("device", [&] { KernelsOf(options.device); });  // checks the name
    return options;
  } catch (const Error& error) {
    Fail(InEpOptions(error.what()));
  }
}

EpOptions ReadEpOptions(const OrtSessionOptions* session) {
  OrtKeyValuePairs* pairs = nullptr;
  Must(Ort().GetSessionOptionsConfigEntries(session, &pairs));
  const char* const* keys = nullptr;
  const char* const* values = nullptr;
  size_t count = 0;
  Ort().GetKeyValuePairs(pairs, &keys, &values, &count);
  const std::string prefix = Concat("ep.", kEpName, ".");
  std::vector<std::pair<std::string, std::string>> entries;
  for (size_t i = 0; i < count; ++i) {
    std::string key = keys[i];
    if (!key.starts_with(prefix)) continue;
    entries.emplace_back(key.substr(prefix.size()), values[i]);
  }
  Ort().ReleaseKeyValuePairs(pairs);
  return ParseEpOptions(entries);
}

}  // namespace onnx_fp8
