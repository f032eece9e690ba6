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

TEST(ApiNamesTest, OptionsBecomeFlags) {
  EXPECT_EQ(InFlags("[m.onnx] `filter_fqns` head matches nothing"),
            "[m.onnx] --filter-fqns head matches nothing");
  EXPECT_EQ(InFlags("`train` a, `train` b, `tie_copies=false`"),
            "--train a, --train b, --no-tie");
  EXPECT_EQ(InFlags("`StepFile` with `grad_accum` wrote"),
            "`onnx-fp8 rewrite --grad-accum` wrote");
  EXPECT_EQ(InFlags("train `unknown` [freeze]"), "train `unknown` [freeze]");
}

// A "`name`" in a string, outside comments.
std::vector<std::string> NamesIn(const fs::path& file) {
  static const std::regex name("`[A-Za-z_]+(=[a-z]+)?`");
  std::vector<std::string> names;
  std::ifstream in(file);
  for (std::string line; std::getline(in, line);) {
    size_t quote = line.find('"');
    if (quote == std::string::npos || line.find("//") < quote) continue;
    for (std::sregex_iterator it(line.begin(), line.end(), name), end;
         it != end; ++it) {
      names.push_back(it->str());
    }
  }
  return names;
}

TEST(ApiNamesTest, EveryNameInAMessageHasAFlag) {
  size_t found = 0;
  for (const char* folder :
       {"onnx_fp8", "graph", "optimizers", "providers", "training"}) {
    for (const auto& entry :
         fs::recursive_directory_iterator(SourcePath(folder))) {
      if (!entry.is_regular_file()) continue;
      for (const std::string& name : NamesIn(entry.path())) {
        ++found;
        EXPECT_NE(InFlags(name), name) << entry.path();
      }
    }
  }
  EXPECT_GT(found, 30u);
}

}  // namespace
}  // namespace onnx_fp8
