// SPDX-License-Identifier: Apache-2.0
#include "providers/ort/ep_options.h"

#include <charconv>

#include "onnx_fp8/recipe_text.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

constexpr char kKnown[] =
    "recipe, scales, filter_fqns, include, exclude, device, loss_chunk, "
    "threads, pool";

// "a,b" → {"a", "b"}
std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  for (size_t at = 0; at < text.size();) {
    size_t end = std::min(text.find(',', at), text.size());
    if (end > at) words.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return words;
}

template <typename T>
T ParseCount(const std::string& text, T least, const char* expected) {
  T count = 0;
  auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), count);
  Check(error == std::errc() && end == text.data() + text.size() &&
            count >= least,
        "expected ", expected, ", got \"", text, "\"");
  return count;
}

Recipe ParseStateless(const std::string& text) {
  Recipe recipe = ParseRecipe(text);
  CheckRecipe(recipe, "");
  Check(!recipe.Uses(Scaling::kDelayed),
        "expected a recipe with dynamic or static scales, got \"", text,
        "\": a session moves no scales from run to run (recipe static takes "
        "those of a trained run, which the option scales names)");
  return recipe;
}

// Static scales come from somewhere, and serve something.
void CheckScales(const Fp8Spec& spec) {
  bool wanted = spec.recipe.Uses(Scaling::kStatic);
  const std::string& source = spec.scales.source;
  Check(wanted || source.empty(), "[option ep.", kEpName,
        ".scales] expected a recipe with static scales, as static, got \"",
        RecipeText(spec.recipe), "\"");
  Check(!wanted || !source.empty(), "[option ep.", kEpName,
        ".recipe] expected the option scales beside a recipe with static "
        "scales: a file of `onnx-fp8 calibrate`, or the folder of a run");
}

void Set(EpOptions* options, const std::string& name,
         const std::string& value) {
  if (name == "recipe") {
    options->spec.recipe = ParseStateless(value);
  } else if (name == "scales") {
    if (!value.empty()) options->spec.scales = ReadStaticScales(value);
  } else if (name == "filter_fqns") {
    options->spec.filter.filter_fqns = Words(value);
  } else if (name == "include") {
    options->spec.filter.include = Words(value);
  } else if (name == "exclude") {
    options->spec.filter.exclude = Words(value);
  } else if (name == "device") {
    KernelsOf(value);  // checks the name
    options->device = value;
  } else if (name == "threads") {
    options->threads.count =
        ParseCount(value, 1, "a number of threads above 0");
  } else if (name == "loss_chunk") {
    options->loss_chunk =
        ParseCount(value, int64_t{0}, "a number of bytes, or 0 for no chunks");
  } else if (name == "pool") {
    Check(value == "session" || value == "own",
          "expected session or own, got \"", value, "\"");
    options->threads.own = value == "own";
  } else {
    Fail("expected one of ", kKnown);
  }
}

}  // namespace

EpOptions ParseEpOptions(
    const std::vector<std::pair<std::string, std::string>>& entries) {
  EpOptions options;
  for (const auto& [name, value] : entries) {
    try {
      Set(&options, name, value);
    } catch (const Error& error) {
      Fail("[option ep.", kEpName, ".", name, "] ", error.what());
    }
  }
  CheckScales(options.spec);
  return options;
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
