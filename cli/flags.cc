// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"
#include "cli/other_names.h"
#include "cli/output.h"

namespace onnx_fp8 {
namespace {

constexpr const char* kHelp = "--help";  // no setting, though CLI11 lists it

template <typename T>
CLI::Validator AtLeast(T min) {
  auto check = [min](std::string& text) -> std::string {
    // CLI11 reads 010 as octal, and a number that is too large as the maximum.
    T value{};
    const char* end = text.data() + text.size();
    auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end ||
        !std::isfinite(static_cast<double>(value)) || value < min) {
      const char* kind = std::is_integral_v<T> ? "an integer" : "a number";
      return Concat("expected ", kind, " of at least ", min, ", got ", text);
    }
    if constexpr (std::is_integral_v<T>) text = std::to_string(value);
    return "";
  };
  return CLI::Validator(check, "");
}

// Levenshtein's.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Breaks `text` at spaces into lines of at most 79 columns (of ASCII). Later
// lines are indented; `end` closes all lines but the last.
std::string Wrapped(std::string text, size_t indent, const std::string& end) {
  std::string lines;
  size_t width = 79 - end.size();
  while (text.size() > width) {
    size_t space = text.rfind(' ', width);
    if (space == std::string::npos || space <= indent) break;
    lines += text.substr(0, space) + end + "\n";
    text = std::string(indent, ' ') + text.substr(space + 1);
  }
  return lines + text + "\n";
}

// CLI11's message, without its own way to state counts.
std::string Plain(const std::string& text) {
  size_t at = text.find(": At Most 1 required but received ");
  if (at != std::string::npos) {
    return text.substr(0, at) + ": expected once, got" +
           text.substr(text.rfind(' ')) + " times";
  }
  at = text.find(": 1 required ");
  if (at == std::string::npos || !text.ends_with(" missing")) return text;
  return text.substr(0, at) + ": expected a value, got none";
}

// Two columns: "  --lr X          learning rate".
std::string HelpLine(const std::string& spelling, const std::string& help) {
  constexpr size_t kColumn = 26;
  std::string text = "  " + spelling;
  if (text.size() + 2 > kColumn) {
    return text + "\n" + Wrapped(std::string(kColumn, ' ') + help, kColumn, "");
  }
  text.resize(kColumn, ' ');
  return Wrapped(text + help, kColumn, "");
}

}  // namespace

std::string Nearest(const std::string& word,
                    const std::vector<std::string>& names) {
  std::string best;
  size_t least = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& name : names) {
    size_t distance = EditDistance(word, name);
    if (distance < least) {
      least = distance;
      best = name;
    }
  }
  return best;
}

std::string ShellLine(const std::vector<std::string>& words) {
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty()) line += ' ';
    bool plain =
        !word.empty() && word.find_first_not_of(
                             "abcdefghijklmnopqrstuvwxyz"
                             "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
                             "0123456789_-+=./,:@%") == std::string::npos;
    if (plain) {
      line += word;
      continue;
    }
    line += '\'';
    for (char c : word) line += c == '\'' ? std::string("'\\''") : Concat(c);
    line += '\'';
  }
  return line;
}

struct Flags::Parser {
  CLI::App app;
  std::map<std::string, std::string> paths;  // and the scheme of each
  std::map<std::string, std::vector<std::string>*> lists;
  std::vector<std::string> examples;

  std::string Help() const {
    std::string text = Wrapped(app.get_description(), 0, "");
    text += "\nUsage: " + app.get_name();
    std::string positional;
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional()) continue;
      text += " " + option->get_name();
      positional += HelpLine(option->get_name(), option->get_description());
    }
    text += " [options]\n\n" + positional;
    if (!positional.empty()) text += "\n";
    for (const std::string& group : app.get_groups()) {
      if (group.empty()) continue;
      std::string lines;
      for (const CLI::Option* option : app.get_options()) {
        if (option->get_positional() || option->get_group() != group) continue;
        std::string spelling = option->get_name(false, true);
        std::string type = option->get_type_name();
        if (!type.empty()) spelling += " " + type;
        lines += HelpLine(spelling, option->get_description());
      }
      if (!lines.empty()) text += group + ":\n" + lines + "\n";
    }
    text += examples.size() == 1 ? "Example:\n" : "Examples:\n";
    for (const std::string& line : examples) {
      text += Wrapped("  " + line, 6, " \\");
    }
    return text;
  }

  // Names of all flags: "--lr", …, without positional ones.
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const CLI::Option* option : app.get_options()) {
      if (!option->get_positional()) names.push_back(option->get_name());
    }
    return names;
  }

  void Refuse(const std::string& word) const {
    if (!word.starts_with("-")) {
      throw UsageError("nothing expects the argument \"" + word + "\"");
    }
    std::string name = word.substr(0, word.find('='));
    const std::vector<std::string> names = Names();
    std::string nearest = MeantByOthers(name, names);
    if (nearest.empty()) nearest = Nearest(name, names);
    throw UsageError(
        "there is no flag " + name +
        (nearest.empty() ? "" : "; did you mean " + nearest + "?"));
  }
};

Flags::Flags(const std::string& command, const std::string& summary)
    : parser_(std::make_unique<Parser>()), group_("Options") {
  CLI::App& app = parser_->app;
  app.description(summary);
  app.name("onnx-fp8 " + command);
  app.allow_extras();  // Refuse gives a better message
  app.set_help_flag("-h,--help", "show this");
}

Flags::~Flags() = default;

void Flags::Positional(const std::string& name, std::string* value,
                       const std::string& help, bool required) {
  // A required word is not taken for one more word of Files.
  parser_->app.add_option(name, *value, help)
      ->type_name("")
      ->required(required);
  parser_->paths[name] = "";
}

void Flags::Text(const std::string& name, std::string* value,
                 const std::string& help) {
  parser_->app.add_option(name, *value, help)->type_name("TEXT")->group(group_);
}

void Flags::Choice(const std::string& name, std::string* value,
                   const std::vector<std::string>& choices,
                   const std::string& help) {
  auto check = [choices](std::string& text) -> std::string {
    if (std::count(choices.begin(), choices.end(), text)) return "";
    std::string list;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (i > 0) list += i + 1 == choices.size() ? " or " : ", ";
      list += choices[i];
    }
    return "expected " + list + ", got " + text;
  };
  std::string list;
  for (const std::string& c : choices) list += (list.empty() ? "" : "|") + c;
  parser_->app.add_option(name, *value, help)
      ->check(CLI::Validator(check, ""))
      ->type_name(list)
      ->group(group_);
}

void Flags::Switch(const std::string& name, bool* value,
                   const std::string& help) {
  parser_->app.add_flag(name, *value, help)->group(group_);
}

void Flags::Int(const std::string& name, int64_t* value, int64_t min,
                const std::string& help) {
  parser_->app.add_option(name, *value, help)
      ->check(AtLeast(min))
      ->type_name("N")
      ->group(group_);
}

void Flags::Number(const std::string& name, double* value, double min,
                   const std::string& help) {
  parser_->app.add_option(name, *value, help)
      ->check(AtLeast(min))
      ->type_name("X")
      ->group(group_);
}

void Flags::List(const std::string& name, std::vector<std::string>* values,
                 const std::string& help) {
  parser_->app.add_option(name, *values, help)
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("A,B,...")
      ->group(group_);
  parser_->lists[name] = values;
}

void Flags::Words(const std::string& name, std::vector<std::string>* values,
                  const std::string& help) {
  parser_->app.add_option(name, *values, help)
      ->allow_extra_args(false)
      ->type_name("TEXT")
      ->group(group_);
  parser_->lists[name] = values;
}

void Flags::File(const std::string& name, std::string* value,
                 const std::string& help, const std::string& scheme) {
  parser_->app.add_option(name, *value, help)->type_name("PATH")->group(group_);
  parser_->paths[name] = scheme;
}

void Flags::Files(const std::string& name, std::vector<std::string>* values,
                  const std::string& help) {
  parser_->app.add_option(name, *values, help)
      ->type_name("FILE...")
      ->group(group_);
  parser_->paths[name] = "";
}

void Flags::Example(const std::string& line) {
  parser_->examples.push_back(line);
}

void Flags::ParseAll(Arguments arguments) {
  CLI::App& app = parser_->app;
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(arguments);
  } catch (const CLI::CallForHelp&) {
    throw;
  } catch (const CLI::ParseError& error) {
    // A misspelled flag is the likely reason if something is missing.
    for (const std::string& word : app.remaining()) {
      if (word.starts_with("-")) parser_->Refuse(word);
    }
    throw UsageError(Plain(error.what()));
  }
  std::vector<std::string> left = app.remaining();
  if (!left.empty()) parser_->Refuse(left.front());
  for (const auto& [name, values] : parser_->lists) std::erase(*values, "");
  all_.clear();
  for (const CLI::Option* option : app.get_options()) {
    if (option->count() == 0) continue;
    std::string name = option->get_name();
    auto& words = all_[name];
    if (option->get_items_expected_max() == 0) continue;  // a switch
    for (std::string word : option->results()) {
      if (word.empty() && parser_->lists.contains(name)) continue;
      auto path = parser_->paths.find(name);
      if (!word.empty() && path != parser_->paths.end() &&
          (path->second.empty() || !word.starts_with(path->second))) {
        word = std::filesystem::absolute(word).lexically_normal().string();
      }
      words.push_back(word);
    }
  }
}

bool Flags::Parse(const Arguments& arguments) {
  arguments_ = arguments;
  try {
    ParseAll(arguments);
  } catch (const CLI::CallForHelp&) {
    Out() << parser_->Help();
    return false;
  }
  given_ = all_;
  return true;
}

void Flags::Fill(const FlagMap& saved) {
  Arguments arguments = arguments_;
  for (const CLI::Option* option : parser_->app.get_options()) {
    std::string name = option->get_name();
    auto it = saved.find(name);
    if (it == saved.end() || Given(name) || name == kHelp) continue;
    if (option->get_positional()) {
      arguments.insert(arguments.begin(), it->second.begin(), it->second.end());
    } else if (it->second.empty()) {
      arguments.push_back(name);
    } else {
      for (const std::string& word : it->second) {
        // CLI11 finds no value in "--name=".
        if (word.empty()) {
          arguments.insert(arguments.end(), {name, word});
        } else {
          arguments.push_back(name + "=" + word);
        }
      }
    }
  }
  ParseAll(arguments);
}

void Flags::RequireKnown(const FlagMap& saved) const {
  for (const auto& [name, words] : saved) {
    if (name == kHelp) throw UsageError(name + " is no setting");
    if (!parser_->app.get_option_no_throw(name)) parser_->Refuse(name);
  }
}

void Flags::Require(const std::vector<std::string>& names) const {
  for (const std::string& name : names) {
    if (!all_.contains(name)) throw UsageError(name + " is missing");
  }
}

FlagMap Flags::Saved() const {
  FlagMap saved = all_;
  std::erase_if(saved, [this](const auto& entry) {
    return entry.second.empty() && parser_->lists.contains(entry.first);
  });
  return saved;
}

}  // namespace onnx_fp8
