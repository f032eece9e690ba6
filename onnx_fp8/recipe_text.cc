// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/recipe_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/check.h"
#include "base/mapped_file.h"
#include "base/shallow_json.h"
#include "onnx_fp8/option_names.h"

namespace onnx_fp8 {
namespace {

using Json = nlohmann::ordered_json;

struct OperandKey {
  const char* item;
  const char* json;
};

// By Use.
constexpr OperandKey kOperands[] = {
    {"i", "input"},
    {"w", "weight"},
    {"go", "grad_output"},
    {"i_gw", "input_for_wgrad"},
    {"w_gi", "weight_for_dgrad"},
    {"go_gw", "grad_output_for_wgrad"},
};

const OperandKey& KeyOf(Use use) { return kOperands[static_cast<size_t>(use)]; }

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

std::optional<int64_t> ParseInt(const std::string& text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end) return {};
  return value;
}

// An item KEY:VALUE of a recipe.
struct Item {
  std::string where;  // start of error messages
  std::string key, value;

  template <typename... Parts>
  [[noreturn]] void Expected(const Parts&... parts) const {
    Fail(where, " ", key, ": expected ", parts..., ", got \"", value, "\"");
  }

  template <size_t n>
  size_t Choose(const char* const (&words)[n]) const {
    auto at = std::ranges::find(words, value);
    if (at == std::end(words))
      Expected(Alternatives({std::begin(words), std::end(words)}));
    return static_cast<size_t>(at - words);
  }

  int64_t Integer() const {
    std::optional<int64_t> number = ParseInt(value);
    if (!number) Expected("an integer");
    return *number;
  }
};

struct FastAccum {
  const char* gemm;
  bool Recipe::*flag;
};

constexpr FastAccum kFastAccum[] = {
    {"fwd", &Recipe::fast_accum_forward},
    {"dgrad", &Recipe::fast_accum_dgrad},
    {"wgrad", &Recipe::fast_accum_wgrad},
};

void ReadFastAccum(const Item& item, Recipe& r) {
  for (const FastAccum& f : kFastAccum) r.*f.flag = false;
  if (item.value == "none") return;
  for (const std::string& gemm : Split(item.value, '+')) {
    auto known = std::ranges::find(kFastAccum, gemm, &FastAccum::gemm);
    if (known == std::end(kFastAccum)) {
      item.Expected("none or fwd, dgrad and wgrad joined by +");
    }
    r.*known->flag = true;
  }
}

std::string FastAccumText(const Recipe& r) {
  std::string text;
  for (const FastAccum& f : kFastAccum) {
    if (r.*f.flag) text += (text.empty() ? "" : "+") + std::string(f.gemm);
  }
  return text.empty() ? "none" : text;
}

void ReadRounding(const Item& item, Recipe& r) {
  auto rounding =
      static_cast<ScaleRounding>(item.Choose({"none", "p2", "floor"}));
  for (OperandRecipe& operand : r.operands) {
    if (!operand.high_precision) operand.rounding = rounding;
  }
}

// A setting has a field in Recipe and a row in this table.
struct Setting {
  const char* item;
  const char* json;
  const char* help;
  void (*read)(const Item& item, Recipe& r);
  std::string (*print)(const Recipe& r);  // null: the item is only read
};

constexpr Setting kSettings[] = {
    {"fa", "fast_accum",
     "fwd+dgrad+wgrad: GEMMs with fast accumulation (on a GPU), or none",
     ReadFastAccum, FastAccumText},
    {"tr", "transposition",
     "requantize: transposed copies come from the FP8 copy, not from hp",
     [](const Item& item, Recipe& r) {
       r.transposition =
           static_cast<Transposition>(item.Choose({"hp", "requantize"}));
     },
     [](const Recipe& r) -> std::string {
       return r.transposition == Transposition::kRequantize ? "requantize"
                                                            : "hp";
     }},
    {"scales", "scale_dtype", "e8m0: storage of scales, float32 or e8m0",
     [](const Item& item, Recipe& r) {
       r.e8m0_scales = item.Choose({"float32", "e8m0"});
     },
     [](const Recipe& r) -> std::string {
       return r.e8m0_scales ? "e8m0" : "float32";
     }},
    {"algo", "amax_algo",
     "most_recent: delayed scales come from the newest amax, or max",
     [](const Item& item, Recipe& r) {
       r.most_recent = item.Choose({"max", "most_recent"});
     },
     [](const Recipe& r) -> std::string {
       return r.most_recent ? "most_recent" : "max";
     }},
    {"history", "amax_history", "N: steps of amax that delayed scaling keeps",
     [](const Item& item, Recipe& r) { r.amax_history = item.Integer(); },
     [](const Recipe& r) { return std::to_string(r.amax_history); }},
    {"margin", "margin", "N: delayed scales are multiplied by 2^N",
     [](const Item& item, Recipe& r) { r.margin = item.Integer(); },
     [](const Recipe& r) { return std::to_string(r.margin); }},
    {"update", "scale_update",
     "micro: delayed scales move with each micro-batch, or each step",
     [](const Item& item, Recipe& r) {
       r.per_micro_batch = item.Choose({"step", "micro"});
     },
     [](const Recipe& r) -> std::string {
       return r.per_micro_batch ? "micro" : "step";
     }},
    {"round", "rounding", "p2: rounding of all scales, none, p2 or floor",
     ReadRounding, nullptr},
};

class Parser {
 public:
  // `where` begins the messages of errors. `long_names`: keys as in JSON.
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
    for (const Setting& k : kSettings) Know(k, key, &item, &known);
    Check(!item.empty(), where_, " expected one of ", known, ", got \"", key,
          "\"");
    Check(items_.try_emplace(item, Item{where_, key, value}).second, where_,
          " ", key, ": expected once, got twice");
  }

  template <typename Key>
  void Know(const Key& candidate, const std::string& key, std::string* item,
            std::string* known) const {
    const char* name = long_ ? candidate.json : candidate.item;
    if (key == name) *item = candidate.item;
    *known += (known->empty() ? "" : ", ") + std::string(name);
  }

  Recipe Apply() {
    for (Use use : kFirstUses) {
      const OperandKey& k = KeyOf(use);
      Check(preset_ || items_.contains(k.item), where_, " expected ",
            long_ ? k.json : k.item, " or a recipe to begin with, got none");
    }
    const Recipe base = preset_.value_or(LabelBase());
    recipe_ = base;
    for (const Setting& setting : kSettings) {
      if (Take(setting.item)) setting.read(item_, recipe_);
    }
    if (items_.contains("history")) history_ = recipe_.amax_history;
    for (size_t i = 0; i < std::size(kOperands); ++i) {
      if (!Take(kOperands[i].item)) continue;
      auto use = static_cast<Use>(i);
      recipe_[use] = Operand();
      if (std::ranges::find(kFirstUses, use) == std::end(kFirstUses)) continue;
      Use second = SecondUse(use);
      if (base[use] == base[second]) recipe_[second] = recipe_[use];
    }
    CheckRecipe(recipe_, where_);
    return recipe_;
  }

  // Whether the item is there. If so, the functions below read it.
  bool Take(const char* item) {
    auto it = items_.find(item);
    if (it == items_.end()) return false;
    item_ = it->second;
    return true;
  }

  void SetHistory(int64_t steps) {
    Check(!history_ || *history_ == steps, where_, " ", item_.key,
          ": expected one length for all amax histories, got ", steps, " and ",
          history_.value_or(0));
    history_ = recipe_.amax_history = steps;
  }

  OperandRecipe Operand() {
    OperandRecipe operand;
    if (item_.value == "hp") return operand;
    std::vector<std::string> parts = Split(item_.value, '_');
    if (parts.size() != 3 && parts.size() != 4) {
      item_.Expected("hp or SCALING_GRANULARITY_FORMAT as in dyn_ten_e4m3");
    }
    operand.high_precision = false;
    ReadScaling(parts[0], &operand);
    ReadGranularity(parts[1], &operand);
    if (parts[2] == "e5m2") {
      operand.dtype = DType::kE5M2;
    } else if (parts[2] != "e4m3") {
      item_.Expected("e4m3 or e5m2 as its third word");
    }
    if (parts.size() == 4) {
      bool floor = parts[3] == "floor";
      if (!floor && parts[3] != "p2")
        item_.Expected("p2 or floor as its last word");
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
      if (!steps)
        item_.Expected("delN with a number of steps as its first word");
      SetHistory(*steps);
    } else if (word == "sta") {
      operand->scaling = Scaling::kStatic;
    } else if (word != "dyn") {
      item_.Expected("dyn, delN or sta as its first word");
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
        item_.Expected("blkN or blkNxN as its second word");
      }
      operand->block = *block;
    } else if (word != "ten") {
      item_.Expected("ten, row, blkN or blkNxN as its second word");
    }
  }

  const std::string where_;
  const bool long_;
  std::optional<Recipe> preset_;
  std::map<std::string, Item> items_;  // by the short name
  Item item_;
  std::optional<int64_t> history_;
  Recipe recipe_;
};

Json ReadJson(const std::string& where, const char* begin, size_t size) {
  Json json =
      ParseShallowJson<Json>(begin, size, 4, where + " expected a recipe");
  Check(!json.is_discarded(), where,
        " expected a recipe as JSON, got another text");
  return json;
}

std::vector<std::pair<std::string, Recipe>> ReadLayers(const std::string& where,
                                                       const Json& layers) {
  Check(layers.is_object(), where,
        " layers: expected an object of layers and their recipes, got ",
        layers.type_name());
  std::vector<std::pair<std::string, Recipe>> recipes;
  for (const auto& [glob, text] : layers.items()) {
    Check(text.is_string(), where, " layers: ", glob,
          ": expected a recipe as text, got ", text.type_name());
    recipes.emplace_back(glob,
                         Parser(Concat(where, " layers: ", glob, ":"), false)
                             .Text(text.get<std::string>()));
  }
  return recipes;
}

LayerRecipes FromJson(const std::string& where, Json json) {
  LayerRecipes all;
  if (json.is_object() && json.contains("layers")) {
    all.layers = ReadLayers(where, json["layers"]);
    json.erase("layers");
  }
  all.recipe = Parser(where, true).FromJson(json);
  return all;
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

}  // namespace

LayerRecipes ParseLayerRecipes(const std::string& text) {
  if (text.starts_with("{")) {
    return FromJson("[recipe]", ReadJson("[recipe]", text.data(), text.size()));
  }
  if (text.ends_with(".json")) {
    const MappedFile file = MapFile(text);
    const std::string where = "[" + text + "]";
    return FromJson(
        where,
        ReadJson(where, reinterpret_cast<const char*>(file.data), file.size));
  }
  return {Parser("[recipe " + text + "]", false).Text(text), {}};
}

Recipe ParseRecipe(const std::string& text) {
  LayerRecipes all = ParseLayerRecipes(text);
  Check(all.layers.empty(), "[", text.ends_with(".json") ? text : "recipe",
        "] expected one recipe, got recipes of layers");
  return all.recipe;
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
    for (Use use : kFirstUses) add(KeyOf(use).item, print(recipe[use]));
    for (Use use : kFirstUses) {
      std::string second = print(recipe[SecondUse(use)]);
      if (second != print(recipe[use])) {
        add(KeyOf(SecondUse(use)).item, second);
      }
    }
  }
  for (const Setting& setting : kSettings) {
    if (!setting.print) continue;
    const std::string item = setting.item;
    std::string value = setting.print(recipe);
    // The item delN says it.
    bool said = item == "history" && recipe.Uses(Scaling::kDelayed);
    if (value != setting.print(base) && !said) add(item, value);
  }
  return text;
}

std::string RecipeJson(const Recipe& recipe) {
  Json json;
  for (size_t i = 0; i < std::size(kOperands); ++i) {
    json[kOperands[i].json] =
        OperandText(recipe.operands[i], recipe.amax_history);
  }
  for (const Setting& setting : kSettings) {
    if (!setting.print) continue;
    std::string value = setting.print(recipe);
    std::optional<int64_t> number = ParseInt(value);
    json[setting.json] = number ? Json(*number) : Json(value);
  }
  return json.dump();
}

std::string RecipeSettingsHelp() {
  std::string help;
  for (const Setting& setting : kSettings) {
    help += Concat("  ", setting.item, ":", setting.help, "\n");
  }
  return help;
}

}  // namespace onnx_fp8
