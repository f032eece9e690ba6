// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/recipe_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "onnx_fp8/check.h"
#include "onnx_fp8/mapped_file.h"
#include "onnx_fp8/shallow_json.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

struct OperandKey {
  const char* item;
  const char* json;
  OperandRecipe Recipe::*use;
  OperandRecipe Recipe::*second;  // of the first three
};

constexpr OperandKey kOperands[] = {
    {"i", "input", &Recipe::input, &Recipe::input_for_wgrad},
    {"w", "weight", &Recipe::weight, &Recipe::weight_for_dgrad},
    {"go", "grad_output", &Recipe::grad_output, &Recipe::grad_output_for_wgrad},
    {"i_gw", "input_for_wgrad", &Recipe::input_for_wgrad, nullptr},
    {"w_gi", "weight_for_dgrad", &Recipe::weight_for_dgrad, nullptr},
    {"go_gw", "grad_output_for_wgrad", &Recipe::grad_output_for_wgrad, nullptr},
};

struct SettingKey {
  const char* item;
  const char* json;
};

constexpr SettingKey kSettings[] = {
    {"fa", "fast_accum"},        {"tr", "transposition"},
    {"scales", "scale_dtype"},   {"algo", "amax_algo"},
    {"history", "amax_history"}, {"margin", "margin"},
    {"update", "scale_update"},  {"round", "rounding"},
};

// The meaning of a label without items of settings.
Recipe LabelBase() {
  Recipe recipe;
  recipe.fast_accum_forward = true;
  return recipe;
}

std::vector<std::string> Split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  for (size_t begin = 0;;) {
    size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    if (end == text.size()) return parts;
    begin = end + 1;
  }
}

template <size_t n>
std::string Choices(const char* const (&words)[n]) {
  std::string list;
  for (size_t i = 0; i < n; ++i) {
    list += (i == 0 ? "" : i + 1 == n ? " or " : ", ") + std::string(words[i]);
  }
  return list;
}

std::optional<int64_t> ParseInt(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return {};
  return value;
}

class Parser {
 public:
  // `where` begins the messages of errors. `long_names`: keys are those of
  // JSON.
  Parser(std::string where, bool long_names)
      : where_(std::move(where)), long_(long_names) {}

  Recipe Text(const std::string& text) {
    std::vector<std::string> items = Split(text, ',');
    size_t first = 0;
    if (items[0].find(':') == std::string::npos) {
      Base(items[0]);
      first = 1;
    }
    for (size_t i = first; i < items.size(); ++i) {
      size_t colon = items[i].find(':');
      Check(colon != std::string::npos, where_, " expected KEY:VALUE, got \"",
            items[i], "\"");
      Add(items[i].substr(0, colon), items[i].substr(colon + 1));
    }
    return Apply();
  }

  Recipe FromJson(const Json& json) {
    Check(json.is_object(), where_, " expected a JSON object, got ",
          json.type_name());
    for (const auto& [key, value] : json.items()) {
      Check(value.is_string() || value.is_number_integer(), where_, " ", key,
            ": expected a string or an integer, got ", value.dump());
      std::string word =
          value.is_string() ? value.get<std::string>() : value.dump();
      if (key == "recipe") {
        Base(word);
      } else {
        Add(key, word);
      }
    }
    return Apply();
  }

 private:
  void Base(const std::string& name) {
    Check(IsRecipePreset(name), where_, " expected ", RecipePresetNames(), ", ",
          long_ ? "" : "a .json file ", "or items as in i:dyn_ten_e4m3, got \"",
          name, "\"");
    preset_ = PresetRecipe(name);
  }

  void Add(const std::string& key, const std::string& value) {
    std::string item, known;
    for (const OperandKey& k : kOperands) Know(k, key, &item, &known);
    for (const SettingKey& k : kSettings) Know(k, key, &item, &known);
    Check(!item.empty(), where_, " expected one of ", known, ", got \"", key,
          "\"");
    Check(items_.try_emplace(item, Item{key, value}).second, where_, " ", key,
          ": expected once, got twice");
  }

  template <typename Key>
  void Know(const Key& candidate, const std::string& key, std::string* item,
            std::string* known) const {
    const char* name = long_ ? candidate.json : candidate.item;
    if (key == name) *item = candidate.item;
    *known += (known->empty() ? "" : ", ") + std::string(name);
  }

  Recipe Apply() {
    if (!preset_) {
      for (size_t i : {0, 1, 2}) {
        const OperandKey& k = kOperands[i];
        Check(items_.contains(k.item), where_, " expected ",
              long_ ? k.json : k.item, " or a recipe to begin with, got none");
      }
    }
    const Recipe base = preset_.value_or(LabelBase());
    recipe_ = base;
    if (Take("round")) RoundAll();
    for (const OperandKey& k : kOperands) {
      if (!Take(k.item)) continue;
      bool follows = k.second && base.*k.use == base.*k.second;
      recipe_.*k.use = Operand();
      if (follows) recipe_.*k.second = recipe_.*k.use;
    }
    Settings();
    CheckRecipe(recipe_, where_);
    return recipe_;
  }

  void Settings() {
    if (Take("fa")) FastAccum();
    if (Take("tr")) {
      recipe_.transposition = Choose({"hp", "requantize"})
                                  ? Transposition::kRequantize
                                  : Transposition::kHighPrecision;
    }
    if (Take("scales")) recipe_.e8m0_scales = Choose({"float32", "e8m0"});
    if (Take("algo")) recipe_.most_recent = Choose({"max", "most_recent"});
    if (Take("history")) SetHistory(Integer());
    if (Take("margin")) recipe_.margin = Integer();
    if (Take("update")) recipe_.per_micro_batch = Choose({"step", "micro"});
  }

  // Whether the item is there. If so, the functions below read it.
  bool Take(const char* item) {
    auto it = items_.find(item);
    if (it == items_.end()) return false;
    item_ = it->second;
    return true;
  }

  template <typename... Parts>
  [[noreturn]] void Expected(const Parts&... parts) const {
    Fail(where_, " ", item_.key, ": expected ", parts..., ", got \"",
         item_.value, "\"");
  }

  template <size_t n>
  size_t Choose(const char* const (&words)[n]) const {
    auto at = std::ranges::find(words, item_.value);
    if (at == std::end(words)) Expected(Choices(words));
    return static_cast<size_t>(at - words);
  }

  int64_t Integer() const {
    std::optional<int64_t> value = ParseInt(item_.value);
    if (!value) Expected("an integer");
    return *value;
  }

  void SetHistory(int64_t steps) {
    Check(!history_ || *history_ == steps, where_, " ", item_.key,
          ": expected one length for all amax histories, got ", steps, " and ",
          history_.value_or(0));
    history_ = recipe_.amax_history = steps;
  }

  void FastAccum() {
    recipe_.fast_accum_forward = false;
    recipe_.fast_accum_dgrad = false;
    recipe_.fast_accum_wgrad = false;
    if (item_.value == "none") return;
    for (const std::string& gemm : Split(item_.value, '+')) {
      bool* flag = gemm == "fwd"     ? &recipe_.fast_accum_forward
                   : gemm == "dgrad" ? &recipe_.fast_accum_dgrad
                   : gemm == "wgrad" ? &recipe_.fast_accum_wgrad
                                     : nullptr;
      if (!flag) Expected("none or fwd, dgrad and wgrad joined by +");
      *flag = true;
    }
  }

  void RoundAll() {
    auto rounding = static_cast<ScaleRounding>(Choose({"none", "p2", "floor"}));
    for (const OperandKey& k : kOperands) {
      OperandRecipe& operand = recipe_.*k.use;
      if (!operand.high_precision) operand.rounding = rounding;
    }
  }

  OperandRecipe Operand() {
    OperandRecipe operand;
    if (item_.value == "hp") return operand;
    std::vector<std::string> parts = Split(item_.value, '_');
    if (parts.size() != 3 && parts.size() != 4) {
      Expected("hp or SCALING_GRANULARITY_FORMAT as in dyn_ten_e4m3");
    }
    operand.high_precision = false;
    ReadScaling(parts[0], &operand);
    ReadGranularity(parts[1], &operand);
    if (parts[2] == "e5m2") {
      operand.dtype = DType::kE5M2;
    } else if (parts[2] != "e4m3") {
      Expected("e4m3 or e5m2 as its third word");
    }
    if (parts.size() == 4) {
      bool floor = parts[3] == "floor";
      if (!floor && parts[3] != "p2") Expected("p2 or floor as its last word");
      operand.rounding =
          floor ? ScaleRounding::kFloor : ScaleRounding::kPowerOfTwo;
    }
    return operand;
  }

  void ReadScaling(const std::string& word, OperandRecipe* operand) {
    if (word.starts_with("del")) {
      operand->scaling = Scaling::kDelayed;
      if (word == "del") return;
      std::optional<int64_t> steps = ParseInt(word.substr(3));
      if (!steps) Expected("delN with a number of steps as its first word");
      SetHistory(*steps);
    } else if (word == "sta") {
      operand->scaling = Scaling::kStatic;
    } else if (word != "dyn") {
      Expected("dyn, delN or sta as its first word");
    }
  }

  void ReadGranularity(const std::string& word, OperandRecipe* operand) {
    if (word == "row") {
      operand->granularity = Granularity::kRow;
    } else if (word.starts_with("blk")) {
      operand->granularity = Granularity::kBlock;
      std::vector<std::string> sizes = Split(word.substr(3), 'x');
      std::optional<int64_t> block = ParseInt(sizes[0]);
      operand->square = sizes.size() == 2 && sizes[0] == sizes[1];
      if (!block || (sizes.size() > 1 && !operand->square)) {
        Expected("blkN or blkNxN as its second word");
      }
      operand->block = *block;
    } else if (word != "ten") {
      Expected("ten, row, blkN or blkNxN as its second word");
    }
  }

  struct Item {
    std::string key, value;
  };

  const std::string where_;
  const bool long_;
  std::optional<Recipe> preset_;
  std::map<std::string, Item> items_;  // by the short name
  Item item_;
  std::optional<int64_t> history_;
  Recipe recipe_;
};

Recipe ParseJson(const std::string& where, const char* begin, size_t size) {
  Json json =
      ParseShallowJson<Json>(begin, size, 4, where + " expected a recipe");
  Check(!json.is_discarded(), where,
        " expected a recipe as JSON, got another text");
  return Parser(where, true).FromJson(json);
}

std::string OperandText(const OperandRecipe& o, int64_t history) {
  if (o.high_precision) return "hp";
  std::string text = o.scaling == Scaling::kDynamic  ? "dyn"
                     : o.scaling == Scaling::kStatic ? "sta"
                                                     : Concat("del", history);
  if (o.granularity == Granularity::kTensor) {
    text += "_ten";
  } else if (o.granularity == Granularity::kRow) {
    text += "_row";
  } else {
    text += Concat("_blk", o.block);
    if (o.square) text += Concat("x", o.block);
  }
  text += o.dtype == DType::kE5M2 ? "_e5m2" : "_e4m3";
  if (o.rounding == ScaleRounding::kPowerOfTwo) text += "_p2";
  if (o.rounding == ScaleRounding::kFloor) text += "_floor";
  return text;
}

std::string FastAccumText(const Recipe& r) {
  std::string text;
  auto add = [&](bool fast, const char* gemm) {
    if (fast) text += (text.empty() ? "" : "+") + std::string(gemm);
  };
  add(r.fast_accum_forward, "fwd");
  add(r.fast_accum_dgrad, "dgrad");
  add(r.fast_accum_wgrad, "wgrad");
  return text.empty() ? "none" : text;
}

// Values of kSettings, except the last, which is never printed.
std::vector<std::string> SettingTexts(const Recipe& r) {
  return {FastAccumText(r),
          r.transposition == Transposition::kRequantize ? "requantize" : "hp",
          r.e8m0_scales ? "e8m0" : "float32",
          r.most_recent ? "most_recent" : "max",
          std::to_string(r.amax_history),
          std::to_string(r.margin),
          r.per_micro_batch ? "micro" : "step"};
}

}  // namespace

Recipe ParseRecipe(const std::string& text) {
  if (text.starts_with("{")) {
    return ParseJson("[recipe]", text.data(), text.size());
  }
  if (text.ends_with(".json")) {
    MappedFile file = MapFile(text);
    return ParseJson("[" + text + "]", reinterpret_cast<const char*>(file.data),
                     file.size);
  }
  return Parser("[recipe " + text + "]", false).Text(text);
}

std::string RecipeText(const Recipe& recipe) {
  bool on = recipe.enabled();
  const Recipe base = on ? LabelBase() : Recipe();
  std::string text = on ? "" : "off";
  auto add = [&](const std::string& key, const std::string& value) {
    text += (text.empty() ? "" : ",") + key + ":" + value;
  };
  auto print = [&](const OperandRecipe& operand) {
    return OperandText(operand, recipe.amax_history);
  };
  if (on) {
    for (size_t i : {0, 1, 2}) {
      add(kOperands[i].item, print(recipe.*kOperands[i].use));
    }
    for (size_t i : {0, 1, 2}) {
      const OperandKey& k = kOperands[i];
      std::string second = print(recipe.*k.second);
      if (second != print(recipe.*k.use)) add(kOperands[i + 3].item, second);
    }
  }
  std::vector<std::string> defaults = SettingTexts(base);
  std::vector<std::string> values = SettingTexts(recipe);
  for (size_t i = 0; i < values.size(); ++i) {
    const std::string item = kSettings[i].item;
    // The item delN says it.
    bool said = item == "history" && recipe.Uses(Scaling::kDelayed);
    if (values[i] != defaults[i] && !said) add(item, values[i]);
  }
  return text;
}

std::string RecipeJson(const Recipe& recipe) {
  Json json;
  for (const OperandKey& k : kOperands) {
    json[k.json] = OperandText(recipe.*k.use, recipe.amax_history);
  }
  std::vector<std::string> values = SettingTexts(recipe);
  for (size_t i = 0; i < values.size(); ++i) {
    std::optional<int64_t> number = ParseInt(values[i]);
    json[kSettings[i].json] = number ? Json(*number) : Json(values[i]);
  }
  return json.dump();
}

}  // namespace onnx_fp8
