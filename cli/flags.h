// SPDX-License-Identifier: Apache-2.0
//
// The flags of one command. CLI11 parses them; only flags.cc knows CLI11.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace onnx_fp8 {

using Arguments = std::vector<std::string>;

// Wrong use of the program: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Flags with the words that follow each: {"--lr": ["0.1"]}. Positional
// arguments have their upper-case names, switches have no words.
using FlagMap = std::map<std::string, std::vector<std::string>>;

class Flags {
 public:
  // `command` as typed: "train".
  Flags(const std::string& command, const std::string& summary);
  ~Flags();

  // Parse writes `value` if the flag is there, and otherwise does not change
  // it.
  void Positional(const std::string& name, std::string* value,
                  const std::string& help, bool required = true);
  void Text(const std::string& name, std::string* value,
            const std::string& help);
  void Choice(const std::string& name, std::string* value,
              const std::vector<std::string>& choices, const std::string& help);
  void Switch(const std::string& name, bool* value, const std::string& help);
  // Errors of the next two: below `min`, not a (finite) number.
  void Int(const std::string& name, int64_t* value, int64_t min,
           const std::string& help);
  void Number(const std::string& name, double* value, double min,
              const std::string& help);
  // "a,b"; may be repeated; "" is an empty list.
  void List(const std::string& name, std::vector<std::string>* values,
            const std::string& help);
  // As List, but commas are part of the words.
  void Words(const std::string& name, std::vector<std::string>* values,
             const std::string& help);
  // A file or folder: Saved makes it absolute, unless it begins with `scheme`.
  // Files: one or more words.
  void File(const std::string& name, std::string* value,
            const std::string& help, const std::string& scheme = "");
  void Files(const std::string& name, std::vector<std::string>* values,
             const std::string& help);

  // The flags added after this stand under this heading in the help.
  void Group(const std::string& title) { group_ = title; }
  // A whole command line, shown in the help.
  void Example(const std::string& line);

  // False if help was asked for; it prints the help then. Errors: UsageError.
  bool Parse(const Arguments& arguments);
  // Parses `saved` for all flags of this command that were not given; they do
  // not count as given. Errors: UsageError.
  void Fill(const FlagMap& saved);

  bool Given(const std::string& name) const { return given_.contains(name); }
  // Errors: UsageError that names a flag of `saved` that this command lacks.
  void RequireKnown(const FlagMap& saved) const;
  // Given or filled in.
  bool Has(const std::string& name) const { return all_.contains(name); }
  // Errors: UsageError that names the first of `names` that neither Parse nor
  // Fill found.
  void Require(const std::vector<std::string>& names) const;
  // Everything that Parse and Fill found, except empty lists.
  FlagMap Saved() const;

 private:
  struct Parser;
  void ParseAll(Arguments arguments);

  std::unique_ptr<Parser> parser_;
  std::string group_;
  Arguments arguments_;
  FlagMap given_, all_;
};

// `words` as a command line from which a shell reads the same words.
std::string ShellLine(const std::vector<std::string>& words);

// The name in `names` that `word` probably meant; "" if none is close.
std::string Nearest(const std::string& word,
                    const std::vector<std::string>& names);

}  // namespace onnx_fp8
