// SPDX-License-Identifier: Apache-2.0
#include "graph/pass.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "onnx_fp8/check.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

const Pass kPasses[] = {
    {"rename", [](Graph& g) { g.name = "renamed"; }},
    {"nothing", [](Graph&) {}},
    {"refuse", [](Graph&) { Fail("[n] is wrong"); }},
    {"break", [](Graph& g) { g.outputs.push_back(g.AddCaptured("c")); }},
};

std::string Complaint(std::span<const Pass> passes,
                      const PassOptions& options) {
  auto graph = ParseGraph("input x: float[2]");
  try {
    RunPasses(*graph, passes, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(RunPasses, SkipsByNameAndReportsTheOthers) {
  auto graph = ParseGraph("input x: float[2]\ny: float[2] = Neg(x)");
  auto timings =
      RunPasses(*graph, kPasses, {.skip = {"nothing", "refuse", "break"}});
  ASSERT_EQ(timings.size(), 1u);
  EXPECT_EQ(timings[0].name, "rename");
  EXPECT_EQ(timings[0].nodes, 1u);
  EXPECT_GE(timings[0].seconds, 0);
  EXPECT_EQ(graph->name, "renamed");
}

TEST(RunPasses, NamesTheGuiltyPass) {
  EXPECT_EQ(Complaint(kPasses, {}), "[n] is wrong (in pass refuse)");
  EXPECT_EQ(Complaint(kPasses, {.skip = {"refuse"}}),
            "[graph renamed] output \"c\": expected a producer, got none "
            "(after pass break)");
  EXPECT_EQ(Complaint(kPasses, {.skip = {"typo"}}),
            "expected the name of a pass to skip, got typo");
}

TEST(RunPasses, DumpsTheTextAfterEachPass) {
  std::filesystem::path folder =
      std::filesystem::path(testing::TempDir()) / "onnx_fp8_pass_dump";
  std::filesystem::remove_all(folder);
  std::string inner = (folder / "a" / "b").string();
  EXPECT_NE(Complaint(kPasses, {.skip = {"refuse"}, .dump_folder = inner}), "");
  EXPECT_EQ(ReadFile(folder / "a/b/00_input.txt"),
            "graph \"graph\" opset 24\ninput x: float[2]\n");
  EXPECT_EQ(ReadFile(folder / "a/b/01_rename.txt"),
            "graph \"renamed\" opset 24\ninput x: float[2]\n");
  EXPECT_TRUE(std::filesystem::exists(folder / "a/b/02_nothing.txt"));
  EXPECT_FALSE(std::filesystem::exists(folder / "a/b/03_refuse.txt"));
  // A graph that Verify refuses is dumped, too.
  EXPECT_NE(ReadFile(folder / "a/b/04_break.txt").find("output c"),
            std::string::npos);
  std::string taken = (folder / "a/b/00_input.txt").string();
  EXPECT_EQ(Complaint(kPasses, {.dump_folder = taken}),
            "[" + taken + "/00_input.txt] can't be written");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace onnx_fp8
