// SPDX-License-Identifier: Apache-2.0
#include "providers/profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "onnx_fp8/check.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {
namespace {

using std::chrono::microseconds;

// Two MatMuls and one op of ours, 30, 10 and 60 microseconds long.
class ProfileTest : public testing::Test {
 protected:
  ProfileTest()
      : graph_(ParseGraph(R"(
input x: float[2,3]
a: float[2,3] = MatMul(x)  # /fc1/MatMul
b: float[2,3] = MatMul<role="dgrad">(x)
_, c: float8e4m3fn[6] = onnx_fp8.Quantize<fqn="fc1.weight">(a)
)")) {
    auto node = graph_->nodes().begin();
    node->metadata["pkg.torch.onnx.name_scopes"] = "['', 'fc1', 'linear']";
    Profiler::Clock::time_point start(std::chrono::hours(5));
    for (auto [begin, end] : {std::pair(0, 30), {40, 50}, {50, 110}}) {
      profiler_.Add(*node++, start + microseconds(begin),
                    start + microseconds(end));
    }
  }
  std::unique_ptr<Graph> graph_;
  Profiler profiler_;
};

TEST_F(ProfileTest, ChromeTrace) {
  auto trace = nlohmann::json::parse(profiler_.ChromeTrace());
  ASSERT_EQ(trace.size(), 3u);
  EXPECT_EQ(trace[0], nlohmann::json::parse(R"({
    "name": "MatMul /fc1/MatMul", "cat": "MatMul", "ph": "X", "pid": 1,
    "tid": 1, "ts": 0.0, "dur": 30.0,
    "args": {"op": "MatMul", "shape": "float[2,3]", "path": "fc1/linear"}})"));
  EXPECT_EQ(trace[1]["ts"], 40.0);
  EXPECT_EQ(trace[1]["args"]["role"], "dgrad");
  EXPECT_EQ(trace[2]["cat"], "onnx_fp8.Quantize");
  EXPECT_EQ(trace[2]["args"]["shape"], "float8e4m3fn[6]");
  EXPECT_EQ(trace[2]["args"]["fqn"], "fc1.weight");
}

TEST_F(ProfileTest, NamesNeedNotBeUtf8) {
  graph_->nodes().front().name = "\xff";
  EXPECT_NO_THROW(nlohmann::json::parse(profiler_.ChromeTrace()));
}

TEST_F(ProfileTest, SummaryIsSortedByTime) {
  EXPECT_EQ(profiler_.Summary(), R"(
op                   calls          ms  share     us/call
total                    3       0.100 100.0%       33.33
onnx_fp8.Quantize        1       0.060  60.0%       60.00
MatMul                   2       0.040  40.0%       20.00
)" + 1);
  profiler_.Clear();
  EXPECT_EQ(profiler_.Summary(), R"(
op       calls          ms  share     us/call
total        0       0.000   0.0%        0.00
)" + 1);
  EXPECT_EQ(profiler_.ChromeTrace(), "[]");
}

TEST_F(ProfileTest, WritesAFile) {
  std::filesystem::path path =
      std::filesystem::path(testing::TempDir()) / "onnx_fp8_profile.json";
  profiler_.WriteChromeTrace(path.string());
  std::ifstream file(path);
  EXPECT_EQ(nlohmann::json::parse(file).size(), 3u);
  std::filesystem::remove(path);
  EXPECT_THROW(profiler_.WriteChromeTrace("/no/such/folder/x"), Error);
}

}  // namespace
}  // namespace onnx_fp8
