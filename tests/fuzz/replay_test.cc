// SPDX-License-Identifier: Apache-2.0
//
// Replays the findings of fuzzing: tests/fuzz/regressions/TARGET/.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/fuzz/fuzz_target.h"
#include "tests/support/paths.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

std::string ReadAll(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class ReplayTest : public testing::TestWithParam<FuzzTarget> {};

// Inputs whose name begins with good must end well. Otherwise the target no
// longer reaches the code that it is meant to try.
TEST_P(ReplayTest, EndsWellOrInAnError) {
  fs::path folder = SourcePath("tests/fuzz/regressions");
  int good = 0;
  for (const auto& entry : fs::directory_iterator(folder / GetParam().name)) {
    SCOPED_TRACE(entry.path().string());
    std::string bytes = ReadAll(entry.path());
    EXPECT_NO_THROW(RunFuzzTarget(GetParam(), bytes));
    if (!entry.path().filename().string().starts_with("good")) continue;
    EXPECT_NO_THROW(GetParam().run(bytes));
    ++good;
  }
  EXPECT_GT(good, 0);
}

INSTANTIATE_TEST_SUITE_P(All, ReplayTest, testing::ValuesIn(FuzzTargets()),
                         [](const auto& info) {
                           return std::string(info.param.name);
                         });

TEST(ReplayTest, EveryFolderBelongsToATarget) {
  for (const auto& entry :
       fs::directory_iterator(SourcePath("tests/fuzz/regressions"))) {
    EXPECT_TRUE(FindFuzzTarget(entry.path().filename().string())) << entry;
  }
}

}  // namespace
}  // namespace onnx_fp8
