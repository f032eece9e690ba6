// SPDX-License-Identifier: Apache-2.0
#include <filesystem>

#include "base/check.h"
#include "graph/fp8/scale_slots.h"
#include "onnx_fp8/recipe_text.h"
#include "onnx_fp8/run_folder.h"
#include "onnx_fp8/speed_table.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"
#include "training/run/metrics.h"
#include "training/step/static_scales.h"

namespace onnx_fp8 {
namespace {

// A recipe prints as text and as JSON; both must read back as the same recipe.
void ReadRecipe(const std::string& text) {
  if (text.ends_with(".json"))
    return;  // a path: the content of some other
             // file
  Recipe recipe = ParseRecipe(text);
  std::string printed = RecipeText(recipe);
  if (RecipeText(ParseRecipe(printed)) != printed ||
      RecipeText(ParseRecipe(RecipeJson(recipe))) != printed) {
    throw std::logic_error("a printed recipe reads as another");
  }
}

template <typename Fn>
void Try(Fn read) {
  try {
    read();
  } catch (const Error&) {
  }
}

}  // namespace

// Every reader of JSON gets the same text.
void FuzzJson(std::string_view bytes) {
  std::string text(bytes);
  std::string path = ScratchFile("config.json", bytes);
  Try([&] { ReadRecipe(text); });
  Try([&] { ReadStaticScales(path); });
  Try([&] { LoadSpeedTable(path); });
  Try([&] { ParseSlots(text); });
  Try([&] { RunFolder(ScratchFolder()).Load(); });
  Try([&] { MetricsFile(ScratchFile("metrics.jsonl", bytes), 5); });
}

}  // namespace onnx_fp8
