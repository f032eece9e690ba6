// SPDX-License-Identifier: Apache-2.0
#include "cli/api_names.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

const std::regex kName("`[A-Za-z_]+(=[a-z]+)?`");

TEST(ApiNamesTest, OptionsBecomeFlags) {
  EXPECT_EQ(InFlags("[m.onnx] `filter_fqns` head matches nothing"),
            "[m.onnx] --filter-fqns head matches nothing");
  EXPECT_EQ(InFlags("`train` a, `train` b, `tie_copies=false`"),
            "--train a, --train b, --no-tie");
  EXPECT_EQ(InFlags("`StepFile` with `grad_accum` wrote"),
            "`onnx-fp8 rewrite --grad-accum` wrote");
  EXPECT_EQ(InFlags("train `unknown` [freeze]"), "train `unknown` [freeze]");
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

TEST(ApiNamesTest, EveryNameInAMessageHasAFlag) {
  size_t found = 0;
  for (const char* folder : {"base", "onnx_fp8", "data", "graph", "optimizers",
                             "providers", "training"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(SourcePath(folder))) {
      if (!entry.is_regular_file()) continue;
      for (const std::string& line : LinesWithNames(entry.path())) {
        ++found;
        EXPECT_FALSE(std::regex_search(InFlags(line), kName))
            << entry.path() << line;
      }
    }
  }
  EXPECT_GT(found, 20u);
}

}  // namespace
}  // namespace onnx_fp8
