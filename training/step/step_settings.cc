// SPDX-License-Identifier: Apache-2.0
#include "training/step/step_settings.h"

#include <charconv>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/joined.h"
#include "base/number_text.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/recipe_text.h"
#include "optimizers/optimizer.h"

namespace onnx_fp8 {
namespace {

std::string Text(double number) { return NumberText(number); }

std::string Text(bool yes) { return yes ? "true" : "false"; }

std::string Text(const std::vector<std::string>& words) {
  return words.empty() ? "" : Joined(words, words.size());
}

std::string Text(const std::optional<double>& number) {
  return number ? Text(*number) : "";
}

std::string Text(const ParameterGroup& group) {
  return Concat(group.pattern, "=weight_decay:", Text(group.weight_decay),
                ",lr_scale:", Text(group.lr_scale));
}

std::string Text(BatchNormMode mode) {
  return mode == BatchNormMode::kTrain  ? "train"
         : mode == BatchNormMode::kEval ? "eval"
                                        : "as-exported";
}

std::string Text(DType dtype) {
  return dtype == DType::kFloat ? "float32" : Name(dtype);
}

std::string Text(const std::optional<int64_t>& number) {
  return number ? std::to_string(*number) : "";
}

std::string Text(const std::vector<float>& numbers) {
  std::string text;
  for (float number : numbers) {
    text += (text.empty() ? "" : ",") + Text(static_cast<double>(number));
  }
  return text;
}

std::string CoefficientsText(const SessionOptions& o) {
  const auto& [a, b, c] = o.optimizer.muon.coefficients;
  return Concat(Text(a), ",", Text(b), ",", Text(c));
}

double MomentumOf(const OptimizerSpec& spec) {
  return spec.kind == "muon" ? spec.muon.momentum : spec.momentum;
}

std::string GroupsText(const SessionOptions& o) {
  std::vector<std::string> words;
  for (const ParameterGroup& group : o.optimizer.groups) {
    words.push_back(Text(group));
  }
  return Text(words);
}

std::string EmaText(const OptimizerSpec& spec) {
  if (spec.ema_every == 1) return Text(spec.ema);
  return Concat(Text(spec.ema), ",every=", spec.ema_every);
}

std::string Recipes(const SessionOptions& o) {
  std::vector<std::string> words;
  for (const auto& [glob, recipe] : o.filter.recipes) {
    words.push_back(Concat(glob, "=", RecipeText(recipe)));
  }
  return Text(words);
}

struct Setting {
  const char* name;
  std::string (*text)(const SessionOptions&);
  const char* other = nullptr;  // the option's name where it is another one

  const char* option() const { return other ? other : name; }
};

using Options = const SessionOptions&;

constexpr Setting kSettings[] = {
    {"loss", [](Options o) { return o.loss.kind; }},
    {"label", [](Options o) { return o.loss.label; }},
    {"logits", [](Options o) { return o.loss.logits; }},
    {"class_axis", [](Options o) { return Text(o.loss.class_axis); }},
    {"ignore_index", [](Options o) { return Text(o.loss.ignore_index); }},
    {"label_smoothing", [](Options o) { return Text(o.loss.label_smoothing); }},
    {"class_weights", [](Options o) { return Text(o.loss.class_weights); }},
    {"delta", [](Options o) { return Text(o.loss.delta); }},
    {"optimizer", [](Options o) { return o.optimizer.kind; }},
    {"weight_decay", [](Options o) { return Text(o.optimizer.weight_decay); }},
    {"decay", [](Options o) { return o.optimizer.decay; }},
    {"betas",
     [](Options o) {
       return Concat(Text(o.optimizer.beta1), ",", Text(o.optimizer.beta2));
     }},
    {"eps", [](Options o) { return Text(o.optimizer.eps); }},
    {"momentum", [](Options o) { return Text(MomentumOf(o.optimizer)); }},
    {"nesterov", [](Options o) { return Text(o.optimizer.nesterov); }},
    {"muon_for", [](Options o) { return Text(o.optimizer.muon.only); }},
    {"muon_nesterov", [](Options o) { return Text(o.optimizer.muon.nesterov); },
     "no_nesterov"},
    {"adjust_lr_fn", [](Options o) { return o.optimizer.muon.adjust_lr; }},
    {"ns_steps",
     [](Options o) { return std::to_string(o.optimizer.muon.steps); }},
    {"ns_coefficients", CoefficientsText},
    {"clip_norm",
     [](Options o) {
       return Concat(Text(o.optimizer.clip_norm),
                     o.optimizer.clip_previous ? ":previous" : "");
     }},
    {"release_gradients",
     [](Options o) { return Text(o.optimizer.release_gradients); }},
    {"moments", [](Options o) { return o.optimizer.moments; }},
    {"master", [](Options o) { return o.optimizer.master; }},
    {"ema", [](Options o) { return EmaText(o.optimizer); }},
    {"groups", GroupsText, "group"},
    {"dtype", [](Options o) { return Text(o.dtype); }},
    {"loss_scale", [](Options o) { return Text(o.loss_scaling.init); }},
    {"loss_scale_interval",
     [](Options o) { return std::to_string(o.loss_scaling.interval); }},
    {"recipe", [](Options o) { return RecipeText(o.recipe); }},
    {"recipes", Recipes, "recipe_for"},
    {"filter_fqns", [](Options o) { return Text(o.filter.filter_fqns); }},
    {"include", [](Options o) { return Text(o.filter.include); }},
    {"exclude", [](Options o) { return Text(o.filter.exclude); }},
    {"speeds",
     [](Options o) { return std::string(o.filter.speeds ? "a table" : ""); },
     "auto_filter"},
    {"train", [](Options o) { return Text(o.train); }},
    {"freeze", [](Options o) { return Text(o.freeze); }},
    {"batch_norm", [](Options o) { return Text(o.batch_norm); }},
    {"tie_copies", [](Options o) { return Text(o.tie_copies); }, "no_tie"},
    {"ties", [](Options o) { return Text(o.ties); }, "tie"},
    {"segment_ids", [](Options o) { return o.segment_ids; }},
    {"grad_accum", [](Options o) { return std::to_string(o.grad_accum); }},
    {"grad_accum_by", [](Options o) { return o.grad_accum_by; }},
};

// Settings that steps of older versions do not name, because they had none.
bool IsNewer(std::string_view setting) {
  return setting == "class_axis" || setting == "ignore_index" ||
         setting == "label_smoothing" || setting == "class_weights" ||
         setting == "delta" || setting == "release_gradients" ||
         setting == "moments" || setting == "master" || setting == "decay" ||
         setting == "ema" || setting == "segment_ids" ||
         setting == "grad_accum_by" || setting == "muon_for" ||
         setting == "muon_nesterov" || setting == "adjust_lr_fn" ||
         setting == "ns_steps" || setting == "ns_coefficients";
}

constexpr char kAdvice[] =
    "; leave that out, or make another step of the model";

// The value of the option, which may say the opposite of the setting.
std::string Shown(const Setting& row, const std::string& text) {
  if (text.empty()) return "none";
  if (!std::string_view(row.option()).starts_with("no_")) return text;
  return Text(text == "false");
}

int64_t ParseCount(const std::string& text, const std::string& what) {
  int64_t count = 0;
  const char* end = text.data() + text.size();
  Check(std::from_chars(text.data(), end, count).ptr == end && count >= 1, what,
        ": expected a number of micro-batches as the setting grad_accum "
        "among its notes, got \"",
        text, "\"");
  return count;
}

using Settings = std::map<std::string, std::string>;

// Numbers between commas; none for a setting without a value.
std::vector<double> ParseNumbers(const Settings& settings, const char* option,
                                 const std::string& what) {
  std::vector<double> numbers;
  auto named = settings.find(option);
  if (named == settings.end() || named->second.empty()) return numbers;
  const std::string& text = named->second;
  const char* end = text.data() + text.size();
  for (const char* at = text.data(); at < end; ++at) {
    double number = 0;
    const auto [stop, error] = std::from_chars(at, end, number);
    Check(error == std::errc() && (stop == end || *stop == ','), what,
          ": expected numbers as the setting ", option,
          " among its notes, got \"", text, "\"");
    numbers.push_back(number);
    at = stop;
  }
  return numbers;
}

LossSpec LossOfSettings(const Settings& settings, const std::string& what) {
  LossSpec loss = {settings.at("loss"), settings.at("label"),
                   settings.at("logits")};
  auto first = [&](const char* option) -> std::optional<double> {
    const std::vector<double> numbers = ParseNumbers(settings, option, what);
    if (numbers.empty()) return std::nullopt;
    return numbers[0];
  };
  auto integer = [&](const char* option) -> std::optional<int64_t> {
    const std::optional<double> number = first(option);
    if (!number) return std::nullopt;
    Check(*number >= -9e15 && *number <= 9e15, what,
          ": expected a smaller number as the setting ", option,
          " among its notes, got ", *number);
    return static_cast<int64_t>(*number);
  };
  loss.class_axis = integer("class_axis");
  loss.ignore_index = integer("ignore_index");
  loss.label_smoothing = first("label_smoothing");
  loss.delta = first("delta");
  for (double weight : ParseNumbers(settings, "class_weights", what)) {
    loss.class_weights.push_back(static_cast<float>(weight));
  }
  return loss;
}

DType ParsePrecision(const std::string& text, const std::string& what) {
  for (DType dtype : {DType::kFloat, DType::kBFloat16, DType::kFloat16}) {
    if (text == Text(dtype)) return dtype;
  }
  Fail(what, ": expected float32, bfloat16 or float16 as the setting dtype ",
       "among its notes, got \"", text, "\"");
}

}  // namespace

std::map<std::string, std::string> StepSettings(const SessionOptions& options) {
  SessionOptions o = options;
  o.optimizer.weight_decay = WeightDecayOf(o.optimizer);
  std::map<std::string, std::string> settings;
  for (const Setting& row : kSettings) settings[row.name] = row.text(o);
  settings["lr"] = Text(o.optimizer.lr);
  return settings;
}

double DefaultRate(const std::map<std::string, std::string>& settings,
                   float own) {
  auto it = settings.find("lr");
  if (it == settings.end()) return own;
  const std::string& text = it->second;
  double rate = 0;
  std::from_chars(text.data(), text.data() + text.size(), rate);
  return static_cast<float>(rate) == own ? rate : own;
}

void TakeStepSettings(const std::map<std::string, std::string>& settings,
                      const std::string& what, SessionOptions* options) {
  const SessionOptions defaults;
  for (const Setting& row : kSettings) {
    auto named = settings.find(row.name);
    Check(named != settings.end() || IsNewer(row.name), what,
          ": expected the setting ", row.name, " among its notes, got none");
    const std::string known =
        named == settings.end() ? row.text(defaults) : named->second;
    std::string got = row.text(*options);
    bool given =
        options->given.contains(row.option()) || got != row.text(defaults);
    if (!given || got == known) continue;
    throw OptionError(Concat(what, ": its `", row.option(), "` is ",
                             Shown(row, known), ", got ", Shown(row, got),
                             kAdvice));
  }
  if (!options->scales.empty()) {
    throw OptionError(Concat(what, ": it has its own `scales`, got ",
                             options->scales, kAdvice));
  }
  options->loss = LossOfSettings(settings, what);
  const std::string& recipe = settings.at("recipe");
  // A file names no other files.
  Check(!recipe.ends_with(".json"), what,
        ": expected a recipe among its notes, got the file ", recipe);
  options->recipe = ParseRecipe(recipe);
  options->dtype = ParsePrecision(settings.at("dtype"), what);
  options->grad_accum = ParseCount(settings.at("grad_accum"), what);
  auto segments = settings.find("segment_ids");
  options->segment_ids = segments == settings.end() ? "" : segments->second;
  auto by = settings.find("grad_accum_by");
  options->grad_accum_by =
      by == settings.end() ? defaults.grad_accum_by : by->second;
}

}  // namespace onnx_fp8
