// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include <algorithm>
#include <filesystem>
#include <numeric>

#include "base/check.h"
#include "cli/other_names.h"
#include "cli/output.h"
#include "onnx_fp8/option_names.h"

namespace onnx_fp8 {
namespace {

using Words = std::vector<std::string>;

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

bool IsArgument(const Option& option) {
  return option.name[0] >= 'A' && option.name[0] <= 'Z';
}

// "--data FILE...".
std::string SpellingOf(const Option& option) {
  std::string text = *option.more.letter ? Concat("-", option.more.letter, ",")
                                         : std::string();
  text += FlagOf(option.name);
  switch (option.kind) {
    case OptionKind::kSwitch:
      return text;
    case OptionKind::kInt:
      return text + " N";
    case OptionKind::kNumber:
      return text + " X";
    case OptionKind::kChoice:
      return text + " " + ChoicesOf(option);
    case OptionKind::kList:
      return text + " A,B,...";
    case OptionKind::kFile:
      return text + " PATH";
    case OptionKind::kFiles:
      return text + " FILE...";
    default:
      return text + " TEXT";
  }
}

// Python's type.
std::string TypeOf(const Option& option) {
  switch (option.kind) {
    case OptionKind::kSwitch:
      return "bool";
    case OptionKind::kInt:
      return "int";
    case OptionKind::kNumber:
      return "float";
    case OptionKind::kText:
      return "str";
    case OptionKind::kChoice:
      return ChoicesOf(option);
    case OptionKind::kFile:
      return "path";
    case OptionKind::kFiles:
      return "list of paths";
    default:
      return "list";
  }
}

// The options of this name, and the options of the group of this name.
std::vector<Option> NamedIn(std::span<const Option> table,
                            const std::string& name) {
  std::vector<Option> found;
  for (const Option& option : table) {
    if (name == option.group || name == option.name) found.push_back(option);
  }
  return found;
}

// "--batch-size" → "batch_size"; "" for other words.
std::string NameOf(const std::string& word) {
  if (!word.starts_with("--") || word.find('_') != std::string::npos) return "";
  std::string name = word.substr(2);
  std::ranges::replace(name, '-', '_');
  return name;
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

std::string FlagOf(const std::string& name) {
  if (name < "a") return name;
  std::string flag = "--" + name;
  std::ranges::replace(flag, '_', '-');
  return flag;
}

std::string InFlags(const std::string& message) {
  static constexpr HostNames kFlags = {
      [](const std::string& name, const std::string& value) {
        return FlagOf(name) + (value.empty() ? "" : " " + value);
      },
      [](const std::string& name) { return "`onnx-fp8 " + name + "`"; }};
  return NamedBy(kFlags, message);
}

CommandHelp WithSession(CommandHelp help) {
  help.sections.push_back(
      {"Loss and parameters",
       {"Loss", "Loss options", "Trained", "LoRA", "Reading"}});
  help.sections.push_back({"Numbers", {"Recipe", "Loss scale"}});
  help.sections.push_back(
      {"Engine", {"Provider", "Engine", "Chunk", "Budget"}});
  return help;
}

Flags::Flags(CommandHelp help, std::span<const Option> own)
    : help_(std::move(help)) {
  for (const FlagSection& section : help_.sections) {
    for (const std::string& entry : section.entries) {
      std::vector<Option> found = NamedIn(own, entry);
      if (found.empty()) found = NamedIn(AllOptions(), entry);
      Check(!found.empty(), "there is no option ", entry);
      for (const Option& option : found) {
        Declare(option);
        headings_.push_back(section.heading);
      }
    }
  }
}

std::string Flags::Help() const {
  std::string text = Wrapped(InFlags(help_.summary), 0, "");
  text += "\nUsage: onnx-fp8 " + help_.command;
  std::string arguments, lines, heading = "Options";
  for (const Option& option : options()) {
    if (!IsArgument(option)) continue;
    const bool several = option.kind == OptionKind::kFiles;
    text += Concat(" ", option.name, several ? "..." : "");
    arguments += HelpLine(option.name, InFlags(HelpOf(option)));
  }
  text += " [options]\n\n" + arguments + (arguments.empty() ? "" : "\n");
  for (size_t i = 0; i < options().size(); ++i) {
    if (IsArgument(options()[i])) continue;
    if (heading != headings_[i]) lines += "\n" + headings_[i] + ":\n";
    heading = headings_[i];
    lines += HelpLine(SpellingOf(options()[i]), InFlags(HelpOf(options()[i])));
  }
  text += "Options:\n  -h,--help               show this\n" + lines + "\n";
  text += help_.examples.size() == 1 ? "Example:\n" : "Examples:\n";
  for (const std::string& line : help_.examples) {
    text += Wrapped("  " + line, 6, " \\");
  }
  return text;
}

std::string Flags::Keywords() const {
  std::string text;
  for (const Option& option : options()) {
    if (IsArgument(option)) continue;
    const std::string line = Concat(option.name, ": ", TypeOf(option), "\n");
    text += line + Wrapped("    " + HelpOf(option), 4, "");
  }
  return text;
}

void Flags::Refuse(const std::string& name) const {
  Words names;
  for (const Option& option : options()) {
    if (!IsArgument(option)) names.emplace_back(option.name);
  }
  std::string meant = MeantByOthers(name, names);
  if (meant.empty()) meant = Nearest(name, names);
  throw OptionError(
      "there is no option " + Reference(name) +
      (meant.empty() ? "" : "; did you mean " + Reference(meant) + "?"));
}

const Option& Flags::Named(const std::string& word) const {
  const std::string name = NameOf(word);
  for (const Option& option : options()) {
    if (name == option.name || word == Concat("-", option.more.letter)) {
      return option;
    }
  }
  if (name.empty()) throw OptionError("there is no option " + word);
  Refuse(name);
}

void Flags::ParseWords(const Words& words) {
  std::map<std::string, Words> found;
  auto is_flag = [&](size_t i) { return words[i].starts_with('-'); };
  // The option of the last flag, if it takes all words up to the next flag.
  const Option* files = nullptr;
  const Option* argument = nullptr;
  for (const Option& option : options()) {
    if (IsArgument(option)) argument = &option;
  }
  bool replaced = false;
  for (size_t i = 0; i < words.size(); ++i) {
    if (!is_flag(i)) {
      const bool several = argument && argument->kind == OptionKind::kFiles;
      if (!argument || (found.contains(argument->name) && !several)) {
        throw OptionError("nothing expects the argument \"" + words[i] + "\"");
      }
      found[argument->name].push_back(words[i]);
      continue;
    }
    const size_t equal = words[i].find('=');
    const Option& option = Named(words[i].substr(0, equal));
    Words& values = found[option.name];
    replaced |= option.more.replaces_model;
    files = option.kind == OptionKind::kFiles ? &option : nullptr;
    if (equal != std::string::npos) {
      values.push_back(words[i].substr(equal + 1));
    } else if (option.kind == OptionKind::kSwitch) {
      continue;
    } else if (++i == words.size()) {
      throw OptionError(Reference(option.name) +
                        ": expected a value, got none");
    } else {
      values.push_back(words[i]);
    }
    while (files && i + 1 < words.size() && !is_flag(i + 1)) {
      values.push_back(words[++i]);
    }
  }
  // Then the last word is the argument, unless the command runs without one.
  if (argument && files && !replaced && !found.contains(argument->name) &&
      found[files->name].size() > 1) {
    found[argument->name] = {found[files->name].back()};
    found[files->name].pop_back();
  }
  for (const auto& [name, values] : found) {
    const Option& option = *Find(name);
    Words parts;
    for (const std::string& value : values) {
      if (option.kind == OptionKind::kList) {
        std::ranges::move(SplitWords(value, ','), std::back_inserter(parts));
      } else {
        parts.push_back(value);
      }
    }
    Set(name, ParseOption(option, parts));
  }
}

bool Flags::Parse(const Arguments& arguments) {
  if (arguments.values.contains("help")) {
    Out() << Keywords();
    return false;
  }
  for (const std::string& word : arguments.words) {
    if (word != "-h" && word != "--help") continue;
    Out() << Help();
    return false;
  }
  ParseWords(arguments.words);
  for (const auto& [name, value] : arguments.values) {
    if (!Find(name)) Refuse(name);
    const bool is_switch = Find(name)->kind == OptionKind::kSwitch;
    if (!is_switch || value != OptionValue(false)) Set(name, value);
  }
  return true;
}

void Flags::Fill(const FlagMap& saved) {
  for (const Option& option : options()) {
    auto at = saved.find(FlagOf(option.name));
    if (at == saved.end() || Given(option.name)) continue;
    Set(option.name, ParseOption(option, at->second), false);
  }
}

void Flags::RequireKnown(const FlagMap& saved) const {
  for (const auto& [flag, words] : saved) {
    if (!Find(flag)) Named(flag);
  }
}

FlagMap Flags::Saved() const {
  FlagMap saved;
  for (const auto& [name, held] : values_) {
    const Option& option = *Find(name);
    Words words = WordsOf(held.value);
    const bool file =
        option.kind == OptionKind::kFile || option.kind == OptionKind::kFiles;
    const std::string scheme = option.more.scheme;
    for (std::string& word : words) {
      const bool other = !scheme.empty() && word.starts_with(scheme);
      if (!file || word.empty() || other) continue;
      word = std::filesystem::absolute(word).lexically_normal().string();
    }
    const bool list = std::holds_alternative<Words>(held.value);
    if (!list || !words.empty()) saved[FlagOf(name)] = words;
  }
  return saved;
}

std::vector<std::string> Flags::Below(const std::string& heading) const {
  Words names;
  for (size_t i = 0; i < options().size(); ++i) {
    if (headings_[i] == heading) names.emplace_back(options()[i].name);
  }
  return names;
}

}  // namespace onnx_fp8
