// SPDX-License-Identifier: Apache-2.0
#include "training/run/option.h"

#include <algorithm>
#include <cmath>
#include <ranges>

#include "base/check.h"
#include "base/number_text.h"
#include "onnx_fp8/option_names.h"

namespace onnx_fp8 {
namespace {

using Words = std::vector<std::string>;

bool IsList(const Option& option) {
  return option.kind == OptionKind::kList ||
         option.kind == OptionKind::kWords || option.kind == OptionKind::kFiles;
}

template <typename... Parts>
[[noreturn]] void Refuse(const Option& option, const Parts&... parts) {
  throw OptionError(Concat(Reference(option.name), ": expected ", parts...));
}

template <typename T>
T InRange(const Option& option, bool ok, T value, const std::string& text) {
  const double real = static_cast<double>(value);
  const double min = option.more.min, max = option.more.max;
  const auto shown = [&](double bound) {
    return option.kind == OptionKind::kInt
               ? std::to_string(static_cast<int64_t>(bound))
               : Concat(bound);
  };
  if (!ok || !std::isfinite(real) || real < min) {
    Refuse(option, option.kind == OptionKind::kInt ? "an integer" : "a number",
           std::isfinite(min) ? " of at least " + shown(min) : "", ", got ",
           text);
  }
  if (real > max) Refuse(option, "at most ", shown(max), ", got ", value);
  return value;
}

template <typename T>
T Parse(const Option& option, const std::string& text) {
  T value{};
  const bool ok = ReadNumber(text, &value);
  return InRange(option, ok, value, text);
}

OptionValue ParseWord(const Option& option, const std::string& text) {
  if (option.kind == OptionKind::kInt) return Parse<int64_t>(option, text);
  if (option.kind == OptionKind::kNumber) return Parse<double>(option, text);
  if (option.kind == OptionKind::kChoice) {
    const Words choices = SplitWords(ChoicesOf(option), '|');
    if (std::ranges::find(choices, text) == choices.end()) {
      Refuse(option, Alternatives(choices), ", got ", text);
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> SplitWords(const std::string& text, char separator) {
  Words words;
  for (auto part : std::views::split(text, separator)) {
    words.emplace_back(part.begin(), part.end());
  }
  return words;
}

std::string Barred(const Words& words) {
  std::string text;
  for (const std::string& word : words)
    text += (text.empty() ? "" : "|") + word;
  return text;
}

OptionValue ParseOption(const Option& option, const Words& words) {
  if (IsList(option)) {
    Words kept = words;
    if (option.kind != OptionKind::kFiles) std::erase(kept, "");
    return kept;
  }
  if (option.kind == OptionKind::kSwitch) {
    if (!words.empty()) Refuse(option, "no value, got ", words[0]);
    return true;
  }
  OptionValue value;
  for (const std::string& word : words) value = ParseWord(option, word);
  if (words.empty()) Refuse(option, "a value, got none");
  if (words.size() > 1) Refuse(option, "once, got ", words.size(), " times");
  return value;
}

OptionValue CheckOption(const Option& option, const OptionValue& value) {
  const auto* text = std::get_if<std::string>(&value);
  const auto* number = std::get_if<int64_t>(&value);
  const bool is_switch = option.kind == OptionKind::kSwitch;
  if (std::holds_alternative<bool>(value)) {
    if (is_switch) return value;
    Refuse(option, "a value, got ", std::get<bool>(value) ? "true" : "false");
  }
  if (is_switch) {
    Refuse(option, "true or false, got ",
           text ? *text : Alternatives(WordsOf(value)));
  }
  if (number && option.kind == OptionKind::kNumber) {
    return CheckOption(option, static_cast<double>(*number));
  }
  if (number && option.kind == OptionKind::kInt) {
    return InRange(option, true, *number, std::to_string(*number));
  }
  if (const auto* real = std::get_if<double>(&value);
      real && option.kind == OptionKind::kNumber) {
    return InRange(option, true, *real, Concat(*real));
  }
  if (text && option.kind == OptionKind::kList) {
    return ParseOption(option, SplitWords(*text, ','));
  }
  return ParseOption(option, WordsOf(value));
}

std::vector<std::string> WordsOf(const OptionValue& value) {
  if (const auto* words = std::get_if<Words>(&value)) return *words;
  if (const auto* text = std::get_if<std::string>(&value)) return {*text};
  if (const auto* number = std::get_if<int64_t>(&value)) {
    return {std::to_string(*number)};
  }
  if (const auto* number = std::get_if<double>(&value)) {
    return {NumberText(*number)};
  }
  return {};
}

std::string ChoicesOf(const Option& option) {
  return option.more.names ? option.more.names() : option.more.choices;
}

std::string HelpOf(const Option& option) {
  std::string help = option.help;
  if (size_t at = help.find("{}"); at != std::string::npos) {
    help.replace(at, 2, option.more.names());
  }
  if (option.preset.empty()) return help;
  return help + (help.empty() ? "" : " (") + "default: " + option.preset +
         (help.empty() ? "" : ")");
}

const Option* OptionSet::Find(const std::string& name) const {
  auto at = std::ranges::find_if(
      options_, [&](const Option& option) { return name == option.name; });
  return at == options_.end() ? nullptr : &*at;
}

void OptionSet::Preset(const std::string& name, const std::string& text) {
  for (Option& option : options_) {
    if (name == option.name) option.preset = text;
  }
}

void OptionSet::Set(const std::string& name, const OptionValue& value,
                    bool given) {
  values_[name] = {CheckOption(*Find(name), value), given};
}

bool OptionSet::Given(const std::string& name) const {
  auto at = values_.find(name);
  return at != values_.end() && at->second.given;
}

std::set<std::string> OptionSet::AllGiven() const {
  std::set<std::string> names;
  for (const auto& [name, held] : values_) {
    if (held.given) names.insert(name);
  }
  return names;
}

void OptionSet::Require(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (!Has(name)) throw OptionError(Reference(name) + " is missing");
  }
}

void OptionSet::RequireBeside(const char* name, const char* other) const {
  if (!Has(name) || Has(other)) return;
  throw OptionError(Reference(name) + " needs " + Reference(other));
}

void OptionSet::Exclude(const char* one, const char* other) const {
  if (!Given(one) || !Given(other)) return;
  throw OptionError(Reference(one) + " and " + Reference(other) +
                    " exclude each other");
}

template <typename T>
T OptionSet::Get(const std::string& name) const {
  if (auto at = values_.find(name); at != values_.end()) {
    return std::get<T>(at->second.value);
  }
  const Option* option = Find(name);
  Check(option != nullptr, "there is no option ", name);
  if (option->preset.empty()) return {};
  return std::get<T>(CheckOption(*option, option->preset));
}

template bool OptionSet::Get(const std::string&) const;
template int64_t OptionSet::Get(const std::string&) const;
template double OptionSet::Get(const std::string&) const;
template std::string OptionSet::Get(const std::string&) const;
template std::vector<std::string> OptionSet::Get(const std::string&) const;

}  // namespace onnx_fp8
