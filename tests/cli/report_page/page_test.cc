// SPDX-License-Identifier: Apache-2.0
#include "cli/report_page/page.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace onnx_fp8 {
namespace {

constexpr char kHostile[] =
    "</script><script>alert(1)</script><!-- & \" ' \\ {{data}} \xe2\x80\xa8";

size_t Count(std::string_view text, std::string_view of) {
  size_t found = 0;
  for (size_t at = text.find(of); at != std::string_view::npos;
       at = text.find(of, at + 1)) {
    ++found;
  }
  return found;
}

RunRecord HostileRun() {
  RunRecord run;
  run.folder = kHostile;
  run.settings = {{kHostile, kHostile}, {"--x", "\xff"}};
  run.facts = {{"model", kHostile}};
  run.notes = {kHostile};
  run.loss = {{1, 1.23456}, {2, 0.5}};
  run.casts = {{kHostile, kHostile, kHostile, kHostile, 1, {{1, 30, 0, 0}}}};
  return run;
}

TEST(ReportPageTest, TextsEndNoScript) {
  const RunRecord harmless = {.folder = "a"};
  const std::string plain = ReportPage({&harmless, 1});
  const RunRecord run = HostileRun();
  const std::string page = ReportPage({&run, 1});
  for (const char* tag : {"<script", "</script", "<!--", "-->"}) {
    EXPECT_EQ(Count(page, tag), Count(plain, tag)) << tag;
  }
  EXPECT_GT(Count(page, "script\\u003ealert(1)"), 0);
  EXPECT_TRUE(page.starts_with(kPageBegin));
}

TEST(ReportPageTest, DataReadBackAsTheyWere) {
  const RunRecord run = HostileRun();
  const auto data = nlohmann::json::parse(InScript(PageData({&run, 1})));
  const auto& told = data["runs"][0];
  const std::string text = told["folder"];
  EXPECT_TRUE(text.starts_with("</script><script>alert(1)</script><!-- & \""));
  EXPECT_NE(text.find("{{data}} \\u2028"), std::string::npos) << text;
  EXPECT_EQ(told["settings"][1][1], "\\xff");
  EXPECT_EQ(told["loss"]["values"], nlohmann::json({1.235, 0.5}));
  EXPECT_EQ(told["casts"]["rows"][0][3], 1);
}

TEST(ReportPageTest, ManyTensorsAndStepsStayBelowTwoMegabytes) {
  std::vector<RunRecord> runs(8);
  for (RunRecord& run : runs) {
    run.folder = "run";
    for (int64_t step = 1; step <= 20000; ++step) {
      run.loss.push_back({step, 1.0 / static_cast<double>(step)});
      if (step % 2 == 0) run.skipped.push_back(step);
    }
    run.grad_norm = run.val_loss = run.loss;
    run.casts.resize(600);
    for (size_t i = 0; i < run.casts.size(); ++i) {
      run.casts[i] = {"model.layers." + std::to_string(i) + ".mlp.up.weight",
                      "forward",
                      "input",
                      "float8e4m3fn",
                      1,
                      {}};
      for (int64_t step = 1; step <= 60; ++step) {
        const float sqnr = i < 100 ? 30 : 5;
        run.casts[i].samples.push_back({step, sqnr, 1e-5F, 1e-3F});
      }
    }
  }
  EXPECT_LT(ReportPage(runs).size(), 2'000'000);
  const auto data = nlohmann::json::parse(PageData(runs));
  const auto& casts = data["runs"][7]["casts"];
  EXPECT_EQ(casts["left_out"], 100);  // the noisiest 500 stay
  EXPECT_EQ(casts["rows"][0][0], "model.layers.100.mlp.up.weight");
}

}  // namespace
}  // namespace onnx_fp8
