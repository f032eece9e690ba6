// SPDX-License-Identifier: Apache-2.0
//
// The options of all hosts: commands, sessions, Python and ONNX Runtime. A row
// (Option) says all about one option, and an OptionSet holds values.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "onnx_fp8/option_error.h"
#include "onnx_fp8/session.h"

namespace onnx_fp8 {

enum class OptionKind {
  kSwitch,  // on, or not given
  kInt,
  kNumber,  // finite
  kText,
  kChoice,  // one of the choices
  kList,    // words without commas
  kWords,   // words that may hold commas
  kFile,    // a file or folder
  kFiles,
};

// The field of SessionOptions that holds an option's value.
using OptionField =
    std::variant<std::monostate, bool SessionOptions::*,
                 int64_t SessionOptions::*, std::string SessionOptions::*,
                 std::vector<std::string> SessionOptions::*>;

// Columns that few rows fill in.
struct OptionColumns {
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  const char* choices = "";          // "train|eval"
  std::string (*names)() = nullptr;  // choices that other code knows
  OptionField field = {};
  // The option counts for one start of a run: it says where the run lies, what
  // else it writes, how much of the machine a file may use, or what makes this
  // machine fast. The run's folder does not keep it, and whoever wrote a folder
  // can't decide it.
  bool of_one_start = false;
  bool of_one_rank = false;     // each rank of a job may have its own value
  bool replaces_model = false;  // MODEL may be left out beside it
  const char* letter = "";      // a short flag: "o"
  const char* scheme = "";      // kFile: a value that begins so is no file
};

struct Option {
  // A command names a group to take all of its options.
  const char* group;
  // As messages and Python spell it. The flag has hyphens in place of
  // underscores. Upper case: an argument without a flag.
  const char* name;
  OptionKind kind;
  // Refers to options as messages do. "{}" stands for the result of `names`.
  const char* help;
  std::string preset = {};  // the default as text; "": none, or `help` says it
  OptionColumns more = {};
};

// The value of a switch is true. An empty list is a value, too, but no run's
// folder keeps it.
using OptionValue =
    std::variant<bool, int64_t, double, std::string, std::vector<std::string>>;

// All options that several hosts or commands share, group by group.
std::span<const Option> AllOptions();

// "train|eval" → {"train", "eval"}; separator ',' for lists.
std::vector<std::string> SplitWords(const std::string& text, char separator);
// The reverse, with '|'.
std::string Barred(const std::vector<std::string>& words);

// The value that the words spell; lists take all of them. Errors: OptionError.
OptionValue ParseOption(const Option& option,
                        const std::vector<std::string>& words);
// The same for a value of a host, which may be text for any option. Errors:
// OptionError.
OptionValue CheckOption(const Option& option, const OptionValue& value);
// Words that ParseOption reads back; none for a switch.
std::vector<std::string> WordsOf(const OptionValue& value);

// The choices of a kChoice, with '|' between them.
std::string ChoicesOf(const Option& option);

// The help with the names of choices and the default.
std::string HelpOf(const Option& option);

// The options of one command or host, and their values.
class OptionSet {
 public:
  void Declare(const Option& option) { options_.push_back(option); }
  const std::vector<Option>& options() const { return options_; }
  // Null: there is none of that name.
  const Option* Find(const std::string& name) const;

  // Gives the option another default. REQUIRES: Find(name).
  void Preset(const std::string& name, const std::string& text);
  // Replaces the value. `given`: the caller has set it, not a run's folder.
  // REQUIRES: Find(name). Errors: CheckOption's.
  void Set(const std::string& name, const OptionValue& value,
           bool given = true);
  void Forget(const std::string& name) { values_.erase(name); }
  bool Given(const std::string& name) const;
  bool Has(const std::string& name) const { return values_.contains(name); }
  std::set<std::string> AllGiven() const;
  // Errors: OptionError that names the first option without a value.
  void Require(const std::vector<std::string>& names) const;
  // Errors: OptionError if there is a value of `name` and none of `other`.
  void RequireBeside(const char* name, const char* other) const;
  // Errors: OptionError if both are given.
  void Exclude(const char* one, const char* other) const;

  // The value, else the default, else false, 0, "" or {}. REQUIRES: Find(name)
  // of that kind.
  bool On(const std::string& name) const { return Get<bool>(name); }
  int64_t Int(const std::string& name) const { return Get<int64_t>(name); }
  double Number(const std::string& name) const { return Get<double>(name); }
  std::string Text(const std::string& name) const {
    return Get<std::string>(name);
  }
  std::vector<std::string> List(const std::string& name) const {
    return Get<std::vector<std::string>>(name);
  }

 private:
  struct Held {
    OptionValue value;
    bool given = false;
  };
  template <typename T>
  T Get(const std::string& name) const;

  std::vector<Option> options_;

 protected:
  std::map<std::string, Held> values_;
};

}  // namespace onnx_fp8
