// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/option_names.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>

#include "cli/flags.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

const std::regex kName("`([A-Za-z_0-9]+)(\\(\\)|=[a-z]+)?`");

TEST(OptionNamesTest, EachHostHasItsOwn) {
  const std::string message =
      "[m.onnx] `filter_fqns` head, `dtype=float16`, `MODEL`, `inspect()` with "
      "`mesh`; `onnx-fp8 x`, a ` b, ``, `Other`";
  EXPECT_EQ(InFlags(message),
            "[m.onnx] --filter-fqns head, --dtype float16, MODEL, `onnx-fp8 "
            "inspect` with --mesh; `onnx-fp8 x`, a ` b, ``, `Other`");
  const HostNames host = {
      [](const std::string& name, const std::string& value) {
        return "<" + name + "|" + value + ">";
      },
      [](const std::string& name) { return name + "!"; }};
  EXPECT_EQ(NamedBy(host, message),
            "[m.onnx] <filter_fqns|> head, <dtype|float16>, <MODEL|>, inspect! "
            "with <mesh|>; `onnx-fp8 x`, a ` b, ``, `Other`");
}

// The lines of a file with a "`name`" that is in no comment.
std::vector<std::string> LinesWithNames(const fs::path& file) {
  std::vector<std::string> lines;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    size_t quote = line.find('"');
    if (quote == std::string::npos || line.find("//") < quote) continue;
    if (std::regex_search(line, kName)) lines.push_back(line);
  }
  return lines;
}

bool IsKnown(const std::string& name) {
  return std::ranges::any_of(
      AllOptions(), [&](const Option& option) { return name == option.name; });
}

TEST(OptionNamesTest, EveryNameInAMessageIsAnOption) {
  size_t found = 0;
  for (const char* folder : {"base", "collectives", "onnx_fp8", "data", "graph",
                             "optimizers", "providers", "training"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(SourcePath(folder))) {
      if (!entry.is_regular_file()) continue;
      for (const std::string& line : LinesWithNames(entry.path())) {
        std::sregex_iterator name(line.begin(), line.end(), kName), end;
        for (; name != end; ++name) {
          ++found;
          EXPECT_TRUE((*name)[2] == "()" || IsKnown((*name)[1]))
              << entry.path() << line;
        }
      }
    }
  }
  EXPECT_GT(found, 20u);
}

TEST(OptionTableTest, RowsAreWhole) {
  std::set<std::string> flags;
  for (const Option& option : AllOptions()) {
    const std::string name = option.name;
    EXPECT_TRUE(flags.insert(name).second || name == "out") << name;
    EXPECT_FALSE(HelpOf(option).empty()) << name;
    EXPECT_EQ(name.find('-'), std::string::npos) << name;
    EXPECT_EQ(option.kind == OptionKind::kChoice,
              *option.more.choices != '\0' ||
                  (option.more.names &&
                   std::string(option.help).find("{}") == std::string::npos))
        << name;
    if (!option.preset.empty() && option.kind != OptionKind::kList) {
      EXPECT_NO_THROW(ParseOption(option, {option.preset})) << name;
    }
  }
}

}  // namespace
}  // namespace onnx_fp8
