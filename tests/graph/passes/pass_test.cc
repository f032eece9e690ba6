// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/pass.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "graph/print.h"
#include "tests/graph/parse.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr char kText[] = R"(
input x: float[2]
y: float[2] = Neg(x)
output y
)";

Pass Rename(const std::string& name, bool may_skip = false) {
  return {name, [name](Graph& graph) { graph.Rename(graph.outputs[0], name); },
          may_skip};
}

std::vector<std::string> FilesOf(const std::string& folder) {
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    files.push_back(std::filesystem::relative(entry.path(), folder).string());
  }
  std::ranges::sort(files);
  return files;
}

TEST(PassRunner, RunsInOrderAndKeepsTheTimes) {
  auto graph = ParseGraph(kText);
  PassRunner runner;
  runner.Begin("one");
  runner.Run({Rename("a"), Rename("b")}, *graph);
  runner.Run({Rename("c"), Rename("a")}, *graph);
  EXPECT_EQ(graph->outputs[0]->name, "a");
  std::vector<std::string> names;
  for (const PassSeconds& pass : runner.seconds()) {
    names.push_back(pass.name);
    EXPECT_GE(pass.seconds, 0);
  }
  EXPECT_EQ(names, (std::vector<std::string>{"a", "b", "c"}));
}

TEST(PassRunner, SkipsWhatMayBeSkipped) {
  auto graph = ParseGraph(kText);
  PassRunner runner({.dump = "", .skip = {"b", "c"}});
  runner.Run({Rename("a"), Rename("b"), Rename("c", true)}, *graph);
  EXPECT_EQ(graph->outputs[0]->name, "b");
}

TEST(PassRunner, WritesTheGraphAfterEachPass) {
  TempDir dir;
  PassRunner runner({.dump = dir / "texts"});
  std::string first;
  for (const char* pipeline : {"one", "two"}) {
    runner.Begin(pipeline);
    auto graph = runner.Source("Read", [] { return ParseGraph(kText); });
    runner.Run({Rename("a"), {"Nothing", [](Graph&) {}}}, *graph);
    first = Print(*graph);
  }
  EXPECT_EQ(
      FilesOf(dir / "texts"),
      (std::vector<std::string>{"01_one/00_Read.txt", "01_one/01_a.txt",
                                "01_one/02_Nothing.txt", "02_two/00_Read.txt",
                                "02_two/01_a.txt", "02_two/02_Nothing.txt"}));
  EXPECT_EQ(ReadText(dir / "texts/01_one/00_Read.txt"),
            Print(*ParseGraph(kText)));
  EXPECT_EQ(ReadText(dir / "texts/02_two/02_Nothing.txt"), first);
  EXPECT_EQ(ReadText(dir / "texts/02_two/01_a.txt"), first);
}

TEST(PassRunner, NamesThePassThatLeavesABrokenGraph) {
  Pass breaks = {"Breaks", [](Graph& graph) {
                   graph.outputs.push_back(graph.outputs[0]);
                 }};
  auto run = [&](PassRunner runner, Verifying verifying) -> std::string {
    auto graph = ParseGraph(kText);
    runner.Begin("p", verifying);
    try {
      runner.Run({breaks, {"Last", [](Graph&) {}}}, *graph);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };
  TempDir dir;
  EXPECT_NE(run(PassRunner(), Verifying::kYes), "");
  std::string text = run(PassRunner({.dump = dir / "d"}), Verifying::kYes);
  EXPECT_NE(text.find("Breaks"), std::string::npos) << text;
  EXPECT_EQ(run(PassRunner(), Verifying::kNo), "");
}

TEST(PassRunner, SaysWhereItCanNotWrite) {
  TempDir dir;
  WriteText(dir / "file", "");
  PassRunner runner({.dump = dir / "file"});
  auto graph = ParseGraph(kText);
  runner.Begin("p");
  try {
    runner.Run({Rename("a")}, *graph);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find(dir / "file"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace onnx_fp8
