// SPDX-License-Identifier: Apache-2.0
#include "cli/report/profile_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/report/memory_text.h"

namespace onnx_fp8 {
namespace {

// 10 ms in nodes of 12: an FP8 product of 6, a norm of 3, a product of 1.
ProfileReport Report() {
  ProfileReport report{.steps = 7, .milliseconds = 12};
  report.nodes = {{.node = "ScaledMatMul fc",
                   .op = "onnx_fp8.ScaledMatMul",
                   .role = "forward",
                   .shape = "float[2,3]",
                   .calls = 2,
                   .milliseconds = 6,
                   .flops = 1.2e9,
                   .bytes = 6e6,
                   .eight_bit = true},
                  {.node = "Norm",
                   .op = "Norm",
                   .role = "other",
                   .calls = 1,
                   .milliseconds = 3,
                   .flops = 3e6,
                   .bytes = 24e6},
                  {.node = "Gemm head",
                   .op = "Gemm",
                   .role = "forward",
                   .calls = 1,
                   .milliseconds = 1,
                   .flops = 5e7,
                   .bytes = 1e6}};
  return report;
}

constexpr MachinePeaks kPeaks = {
    .flops = 100e9, .eight_bit_flops = 400e9, .bytes = 16e9};

TEST(ProfileText, GroupsAddUp) {
  auto roles = GroupBy(Report(), &NodeProfile::role);
  ASSERT_EQ(roles.size(), 2u);
  EXPECT_EQ(roles[0].key, "forward");
  EXPECT_EQ(roles[0].calls, 3);
  EXPECT_EQ(roles[0].milliseconds, 7);
  EXPECT_EQ(roles[1].key, "other");
  EXPECT_EQ(GroupBy(Report(), &NodeProfile::op).size(), 3u);
}

TEST(ProfileText, RatesAndShares) {
  auto json = ProfileJson(Report(), kPeaks);
  EXPECT_EQ(json["ms_in_nodes"], 10);
  EXPECT_DOUBLE_EQ(json["roles"][0]["share"].get<double>(), 0.7);
  auto near = [&](int node, const char* key, double expected) {
    EXPECT_NEAR(json["nodes"][static_cast<size_t>(node)][key].get<double>(),
                expected, 1e-12)
        << node << " " << key;
  };
  near(0, "gflops", 200);  // 1.2e9 in 6 ms
  near(0, "flops_share", 0.5);
  near(0, "gbytes", 1);
  near(1, "gflops", 1);
  near(1, "flops_share", 0.01);
  near(1, "gbytes", 8);
  near(1, "bytes_share", 0.5);
  near(2, "gflops", 50);
  near(2, "flops_share", 0.5);  // of the peak of floats
}

TEST(ProfileText, AsText) {
  std::ostringstream out;
  PrintProfile(Report(), kPeaks, out);
  for (const char* words :
       {"12.00 ms a step, 10.00 of them in nodes, the mean of 7 steps",
        "  forward      3  7.000  70.0\n",
        "100 GF/s, 400 on 8-bit floats, and 16.0 GB/s",
        "6.000       60.0  200.0  50   1.0   6\n"}) {
    EXPECT_NE(out.str().find(words), std::string::npos) << words << out.str();
  }
  std::ostringstream cold;
  PrintProfile({.steps = 1, .cold = true}, kPeaks, cold);
  EXPECT_NE(cold.str().find("of the first step alone"), std::string::npos);
  std::ostringstream none;
  PrintProfile({}, kPeaks, none);
  EXPECT_EQ(none.str(), "\nProfile: no step was run\n");
}

// 4 ms of the nodes were communication; the step waited for one of them.
TEST(ProfileText, Communication) {
  ProfileReport report = Report();
  EXPECT_FALSE(ProfileJson(report, kPeaks).contains("communication"));
  report.transfers = {4, 1};
  EXPECT_EQ(ProfileJson(report, kPeaks)["communication"]["hidden_ms"], 3);
  std::ostringstream out;
  PrintProfile(report, kPeaks, out);
  for (const char* words :
       {"12.00 ms a step, 7.00 of them in nodes",
        "Communication: 4.00 ms, 3.00 of them hidden behind other nodes; the "
        "step waited 1.00\n"}) {
    EXPECT_NE(out.str().find(words), std::string::npos) << words << out.str();
  }
}

TEST(MemoryText, OtherIsWhatTheReportDoesNotSee) {
  // 100 of state and 60 in the arena are alive; arenas of 100 are known.
  MemoryReport report;
  report.live = {{.kind = MemoryKind::kParameter, .bytes = 100},
                 {.kind = MemoryKind::kTemporary, .bytes = 60}};
  report.in_arena_bytes = 60;
  report.arena_bytes = 80;
  EXPECT_EQ((ProcessMemory{1000, 100}.Other(report)), 800u);
  EXPECT_EQ((ProcessMemory{150, 100}.Other(report)), 0u);
  auto json = MemoryJson(report, ProcessMemory{1000, 100});
  EXPECT_EQ(json["kinds"]["parameters"], 100);
  EXPECT_EQ(json["kinds"]["fp8_copies"], 0);
  EXPECT_EQ(json["other_bytes"], 800);
  EXPECT_EQ(json["values"].size(), 2u);
  EXPECT_FALSE(MemoryJson(report, std::nullopt).contains("peak_bytes"));
}

}  // namespace
}  // namespace onnx_fp8
