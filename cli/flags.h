// SPDX-License-Identifier: Apache-2.0
//
// The options of one command: its command line, its help, and the values that a
// run's folder keeps.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "training/run/option.h"

namespace onnx_fp8 {

// What a command gets: the words behind its name, or a host's values by the
// names of options.
struct Arguments {
  std::vector<std::string> words;
  std::map<std::string, OptionValue> values = {};
};

// Flags with the words that follow each: {"--lr": ["0.1"]}. An argument without
// a flag has its upper-case name, switches have no words.
using FlagMap = std::map<std::string, std::vector<std::string>>;

// A heading of the help with names of options and of groups.
struct FlagSection {
  std::string heading;
  std::vector<std::string> entries;
};

struct CommandHelp {
  std::string command;  // as typed: "bench gemm"
  std::string summary;
  std::vector<FlagSection> sections;
  std::vector<std::string> examples;  // whole command lines
};

// Adds the sections that all commands with a session share.
CommandHelp WithSession(CommandHelp help);

class Flags : public OptionSet {
 public:
  // Declares the options that the help's entries name: rows of `own`, else of
  // AllOptions().
  explicit Flags(CommandHelp help, std::span<const Option> own = {});

  // False if help was asked for, by --help or the value `help`; it prints the
  // help then. Errors: OptionError.
  bool Parse(const Arguments& arguments);
  // Gives each option that has not been given its value in `saved`; still it
  // does not count as given. Errors: OptionError for a value that does not fit.
  void Fill(const FlagMap& saved);
  // Errors: OptionError that names a flag of `saved` that this command lacks.
  void RequireKnown(const FlagMap& saved) const;
  // The options for people who write Python, with a type and the help of each.
  std::string Keywords() const;
  // All values as words; paths are absolute.
  FlagMap Saved() const;
  // The names of the options that the help lists under this heading.
  std::vector<std::string> Below(const std::string& heading) const;

 private:
  void ParseWords(const std::vector<std::string>& words);
  std::string Help() const;
  // The option that a word such as "--lr" or "-o" names. Errors: OptionError if
  // the command has no such option.
  const Option& Named(const std::string& word) const;
  [[noreturn]] void Refuse(const std::string& name) const;

  CommandHelp help_;
  std::vector<std::string> headings_;  // for each of options(), its heading
};

// "batch_size" → "--batch-size"; "MODEL" stays.
std::string FlagOf(const std::string& name);

// A message with options as flags: "`batch_size` 8" → "--batch-size 8".
std::string InFlags(const std::string& message);

// `words` as a command line from which a shell reads the same words.
std::string ShellLine(const std::vector<std::string>& words);

// The name in `names` that `word` probably meant; "" if none is close.
std::string Nearest(const std::string& word,
                    const std::vector<std::string>& names);

}  // namespace onnx_fp8
