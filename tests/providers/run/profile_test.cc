// SPDX-License-Identifier: Apache-2.0
#include "providers/run/profile.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/check.h"
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
  static Profiler::Clock::time_point At(int at) {
    return Profiler::Clock::time_point(std::chrono::hours(5)) +
           microseconds(at);
  }
  const onnx_fp8::Node* Node(int i) const {
    return &*std::next(graph_->nodes().begin(), i);
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
    "args": {"op": "MatMul", "shape": "float[2,3]", "path": "fc1/linear",
             "gflops": 0.0012, "gbytes": 0.0016}})"));
  EXPECT_EQ(trace[1]["ts"], 40.0);
  EXPECT_EQ(trace[1]["args"]["role"], "dgrad");
  EXPECT_EQ(trace[2]["cat"], "onnx_fp8.Quantize");
  EXPECT_EQ(trace[2]["args"]["shape"], "float8e4m3fn[6]");
  EXPECT_EQ(trace[2]["args"]["fqn"], "fc1.weight");
}

TEST_F(ProfileTest, NamesNeedNotBeUtf8) {
  graph_->nodes().front().name = "\xff";
  EXPECT_TRUE(nlohmann::json::accept(profiler_.ChromeTrace()));
}

TEST_F(ProfileTest, WithoutTraceNothingGrows) {
  Profiler profiler(false);
  profiler.BeginStep(At(0));
  profiler.Add(*Node(0), At(1), At(3));
  profiler.EndStep(At(5));
  EXPECT_EQ(profiler.size(), 0u);
  EXPECT_EQ(profiler.ChromeTrace(), "[]");
  EXPECT_EQ(profiler.Report().nodes.size(), 1u);
}

// A node that ran beside others has a row of its own. It may have begun first.
TEST_F(ProfileTest, NodesBesideOthers) {
  Profiler profiler;
  profiler.Add(*Node(0), At(10), At(30));
  profiler.Add(*Node(1), At(5), At(25), Lane::kBeside);
  auto trace = nlohmann::json::parse(profiler.ChromeTrace());
  EXPECT_EQ(trace[0]["tid"], 1);
  EXPECT_EQ(trace[0]["ts"], 5.0);
  EXPECT_EQ(trace[1]["tid"], 2);
  EXPECT_EQ(trace[1]["ts"], 0.0);
}

// Means over the counted steps.
TEST_F(ProfileTest, Transfers) {
  profiler_.AddTransfer(microseconds(7000), microseconds(7000));
  for (int step : {0, 1, 2}) {
    profiler_.BeginStep(At(0));
    profiler_.AddTransfer(microseconds(1000 * step), microseconds(500));
    profiler_.EndStep(At(100));
  }
  const TransferTimes times = profiler_.Report().transfers;
  EXPECT_DOUBLE_EQ(times.all, 1.5);
  EXPECT_DOUBLE_EQ(times.exposed, 0.5);
  EXPECT_DOUBLE_EQ(times.hidden(), 1);
}

TEST_F(ProfileTest, NothingCountsOutsideOfSteps) {
  EXPECT_EQ(profiler_.Report().steps, 0);
  EXPECT_TRUE(profiler_.Report().nodes.empty());
}

TEST_F(ProfileTest, TheOnlyStepCounts) {
  profiler_.BeginStep(At(0));
  profiler_.Add(*Node(0), At(10), At(30));
  profiler_.EndStep(At(100));
  ProfileReport report = profiler_.Report();
  EXPECT_EQ(report.steps, 1);
  EXPECT_TRUE(report.cold);
  EXPECT_DOUBLE_EQ(report.milliseconds, 0.1);
  ASSERT_EQ(report.nodes.size(), 1u);
  EXPECT_DOUBLE_EQ(report.nodes[0].milliseconds, 0.02);
}

TEST_F(ProfileTest, TheFirstOfSeveralStepsDoesNot) {
  // Three steps; in the second the first node runs twice (micro-batches).
  profiler_.BeginStep(At(0));
  profiler_.Add(*Node(0), At(0), At(900));
  profiler_.Add(*Node(2), At(900), At(901));
  profiler_.EndStep(At(1000));
  profiler_.BeginStep(At(1000));
  profiler_.Add(*Node(0), At(1000), At(1010));
  profiler_.Add(*Node(0), At(1010), At(1030));
  profiler_.Add(*Node(1), At(1030), At(1130));
  profiler_.EndStep(At(1200));
  profiler_.Add(*Node(1), At(1200), At(9000));  // of an evaluation
  profiler_.BeginStep(At(10000));
  profiler_.Add(*Node(0), At(10000), At(10030));
  profiler_.EndStep(At(10100));
  ProfileReport report = profiler_.Report();
  EXPECT_EQ(report.steps, 2);
  EXPECT_FALSE(report.cold);
  EXPECT_DOUBLE_EQ(report.milliseconds, 0.15);
  ASSERT_EQ(report.nodes.size(), 2u);
  const NodeProfile& longest = report.nodes[0];
  EXPECT_EQ(longest.node, "MatMul -> b");
  EXPECT_EQ(longest.role, "dgrad");
  EXPECT_DOUBLE_EQ(longest.milliseconds, 0.05);
  EXPECT_DOUBLE_EQ(longest.calls, 0.5);
  const NodeProfile& other = report.nodes[1];
  EXPECT_EQ(other.op, "MatMul");
  EXPECT_EQ(other.shape, "float[2,3]");
  EXPECT_EQ(other.role, "other");
  EXPECT_DOUBLE_EQ(other.milliseconds, 0.03);
  EXPECT_DOUBLE_EQ(other.calls, 1.5);
  // (2,3) times 3 deep, and two tensors of 24 bytes; 1.5 times per step.
  EXPECT_DOUBLE_EQ(other.flops, 1.5 * 36);
  EXPECT_DOUBLE_EQ(other.bytes, 1.5 * 48);
  EXPECT_FALSE(other.eight_bit);
}

TEST(ProfileRoles, FollowNotesOpsAndParts) {
  auto graph = ParseGraph(R"(
input x: float[4]
a: float[4] = onnx_fp8.ScaledMatMul<role="wgrad", fqn="fc.weight">(x)
b: float[4] = onnx_fp8.QuantizeTensor(x)
c: float[4] = onnx_fp8.UpdateScale(x)
f: float[4] = onnx_fp8.QuantizeBlock(x)
g: float[4] = onnx_fp8.DequantizeBlock(x)
optimizer.norm: float[4] = Sqrt(x)
d: float[4] = onnx_fp8.AdamW(x)
e: float[4] = Gelu(x)
)");
  graph->Find("optimizer.norm")->producer->part = Part::kOptimizer;
  Profiler profiler;
  Profiler::Clock::time_point now{};
  profiler.BeginStep(now);
  for (const Node& node : graph->nodes()) profiler.Add(node, now, now);
  profiler.EndStep(now);
  std::string roles;
  for (const NodeProfile& node : profiler.Report().nodes) {
    roles += node.role + " ";
  }
  EXPECT_EQ(roles,
            "wgrad quantize quantize quantize quantize optimizer optimizer "
            "other ");
  EXPECT_TRUE(profiler.Report().nodes[0].eight_bit);
  EXPECT_EQ(profiler.Report().nodes[0].fqn, "fc.weight");
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
