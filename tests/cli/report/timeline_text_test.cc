// SPDX-License-Identifier: Apache-2.0
#include "cli/report/timeline_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

namespace onnx_fp8 {
namespace {

TimelineReport ThreeSteps() {
  TimelineReport report{.steps = 3, .milliseconds = 12, .host = 0.5};
  report.idle = 0.25;
  report.gpu = "h200";
  report.nodes = {{.node = {.node = "Gemm fc",
                            .op = "Gemm",
                            .role = "forward",
                            .shape = "float[2,3]",
                            .calls = 2,
                            .milliseconds = 6},
                   .least = 4,
                   .gap = 0.125,
                   .beside = 1},
                  {.node = {.node = "AllReduce",
                            .role = "collective",
                            .calls = 1,
                            .milliseconds = 3},
                   .beside = 1},
                  {.node = {.node = "Gemm head",
                            .op = "Gemm",
                            .role = "forward",
                            .calls = 1,
                            .milliseconds = 1},
                   .least = 0.5}};
  return report;
}

TEST(TimelineText, RolesAddUp) {
  auto json = TimelineJson(ThreeSteps());
  ASSERT_EQ(json["roles"].size(), 2u);
  EXPECT_EQ(json["roles"][0], (nlohmann::ordered_json{{"role", "forward"},
                                                      {"calls", 3.0},
                                                      {"ms", 7.0},
                                                      {"least_ms", 4.5},
                                                      {"gap_ms", 0.125},
                                                      {"beside_ms", 1.0}}));
  EXPECT_EQ(json["nodes"].size(), 3u);
  EXPECT_EQ(json["ms"], 12);
  EXPECT_EQ(json["gpu"], "h200");

  std::ostringstream out;
  PrintTimeline(ThreeSteps(), out);
  EXPECT_EQ(out.str(), R"(
Timeline: 12.000 ms of the device a step, the mean of 3; between launches it is idle for 0.250; the host starts a step in 0.500
least: by the roofline of h200; gap: the device waits for the kernel; beside: another stream works, too

  role        kernels  least ms      ms  gap ms  beside ms
  forward           3     4.500   7.000   0.125      1.000
  collective        1     0.000   3.000   0.000      1.000
  all               4     4.500  10.000   0.125      2.000

  node       role        shape       kernels  least ms     ms  gap ms  beside ms
  Gemm fc    forward     float[2,3]        2     4.000  6.000   0.125      1.000
  AllReduce  collective                    1     0.000  3.000   0.000      1.000
  Gemm head  forward                       1     0.500  1.000   0.000      0.000
)");
}

TEST(TimelineText, WhatIsNotKnownIsLeftOut) {
  TimelineReport report = ThreeSteps();
  report.gpu.clear();
  EXPECT_FALSE(TimelineJson(report).contains("gpu"));
  EXPECT_FALSE(TimelineJson(report)["roles"][0].contains("least_ms"));

  report = {};
  report.notes = {"the run had 2 steps\n"};
  std::ostringstream out;
  PrintTimeline(report, out);
  EXPECT_EQ(out.str(), "  timeline: the run had 2 steps\\x0a\n");
}

}  // namespace
}  // namespace onnx_fp8
