// SPDX-License-Identifier: Apache-2.0
#include "training/run/metrics.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <limits>
#include <nlohmann/json.hpp>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

StepMetrics MetricsOf(int64_t step) {
  return {.step = step,
          .loss = 2.5,
          .grad_norm = 0.125,
          .lr = 0.001,
          .samples_per_second = 12.5};
}

TEST(Metrics, OneObjectPerLine) {
  TempDir dir;
  MetricsFile file(dir / "metrics.jsonl", 0);
  file.Append(MetricsOf(1));
  StepMetrics tokens = MetricsOf(2);
  tokens.tokens_per_second = 1600;
  file.Append(tokens);
  file.Append(ValidationMetrics{.step = 2, .val_loss = 2, .val_accuracy = 0.5});
  file.Append(ValidationMetrics{.step = 2, .val_loss = 2, .val_perplexity = 8});
  file.Sync();
  EXPECT_EQ(ReadText(dir / "metrics.jsonl"),
            R"({"step":1,"loss":2.5,"grad_norm":0.125,"lr":0.001,)"
            R"("samples_per_second":12.5})"
            "\n"
            R"({"step":2,"loss":2.5,"grad_norm":0.125,"lr":0.001,)"
            R"("samples_per_second":12.5,"tokens_per_second":1600.0})"
            "\n"
            R"({"step":2,"val_loss":2.0,"val_accuracy":0.5})"
            "\n"
            R"({"step":2,"val_loss":2.0,"val_perplexity":8.0})"
            "\n");
}

TEST(Metrics, TheLargestUpdateIsWrittenIfItIsMeasured) {
  TempDir dir;
  MetricsFile file(dir / "metrics.jsonl", 0);
  StepMetrics step = MetricsOf(1);
  step.update_amax = 1.5;
  file.Append(step);
  step.update_amax = std::numeric_limits<double>::infinity();
  file.Append(step);
  EXPECT_EQ(ReadText(dir / "metrics.jsonl"),
            R"({"step":1,"loss":2.5,"grad_norm":0.125,"update_amax":1.5,)"
            R"("lr":0.001,"samples_per_second":12.5})"
            "\n"
            R"({"step":1,"loss":2.5,"grad_norm":0.125,"update_amax":null,)"
            R"("nonfinite":true,"lr":0.001,"samples_per_second":12.5})"
            "\n");
}

TEST(Metrics, NonFiniteValuesStayJson) {
  TempDir dir;
  MetricsFile file(dir / "metrics.jsonl", 0);
  StepMetrics step = MetricsOf(1);
  step.loss = std::numeric_limits<double>::quiet_NaN();
  step.grad_norm = std::numeric_limits<double>::infinity();
  step.skipped = true;
  file.Append(step);
  auto line = nlohmann::json::parse(ReadText(dir / "metrics.jsonl"));
  EXPECT_TRUE(line["loss"].is_null());
  EXPECT_TRUE(line["grad_norm"].is_null());
  EXPECT_EQ(line["nonfinite"], true);
  EXPECT_EQ(line["skipped"], true);
  EXPECT_EQ(line["lr"], 0.001);
}

TEST(Metrics, ResumeCutsWhatLiesBeyondTheCheckpoint) {
  TempDir dir;
  std::string path = dir / "metrics.jsonl";
  {
    MetricsFile file(path, 0);
    for (int64_t step : {1, 2, 3, 4}) file.Append(MetricsOf(step));
  }
  std::string all = ReadText(path);
  std::string two = all.substr(0, all.find('\n', all.find('\n') + 1) + 1);
  WriteText(path, all + "{\"step\":5,\"lo");  // torn
  {
    MetricsFile file(path, 2);
    EXPECT_EQ(file.cut(), 3);
    EXPECT_EQ(ReadText(path), two);
    file.Append(MetricsOf(3));
    file.Append(MetricsOf(4));
  }
  EXPECT_EQ(ReadText(path), all);
  // A torn line does not count, even if the checkpoint has its step.
  WriteText(path, all + "{\"step\":4}");
  EXPECT_EQ(MetricsFile(path, 4).cut(), 1);
  EXPECT_EQ(ReadText(path), all);
  EXPECT_EQ(MetricsFile(path, 4).cut(), 0);
  EXPECT_EQ(MetricsFile(path, 0).cut(), 4);
  EXPECT_EQ(ReadText(path), "");
}

TEST(Metrics, ForeignLinesGo) {
  TempDir dir;
  std::string path = dir / "metrics.jsonl";
  std::string deep = std::string(1000, '[') + std::string(1000, ']');
  WriteText(path, "\n[]\n{}\n{\"step\":\"1\"}\nnull\n\xff\n{\"step\":1,\"x\":" +
                      deep + "}\n" + R"({"step":1,"x":")" +
                      std::string(3 << 20, 'x') + "\"}\n{\"step\":1}\n");
  EXPECT_EQ(MetricsFile(path, 9).cut(), 8);
  EXPECT_EQ(ReadText(path), "{\"step\":1}\n");
}

TEST(Metrics, AFullDiskLeavesWholeLines) {
  TempDir dir;
  std::string path = dir / "metrics.jsonl";
  MetricsFile file(path, 0);
  file.Append(MetricsOf(1));
  std::string before_text = ReadText(path);
  // A limit on file sizes acts like a full disk.
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small{before_text.size() + 20, before.rlim_max};
  auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  std::string error = ErrorOf([&] { file.Append(MetricsOf(2)); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_NE(error.find("metrics.jsonl] can't be written: File too large"),
            std::string::npos)
      << error;
  EXPECT_EQ(ReadText(path), before_text);
  file.Append(MetricsOf(2));
  EXPECT_EQ(MetricsFile(path, 2).cut(), 0);
}

TEST(Metrics, NamesTheFileThatCanNotBeOpened) {
  ExpectError([] { MetricsFile("/no/such/metrics.jsonl", 0); },
              "[/no/such/metrics.jsonl] can't be opened: No such file");
}

// Other names of the file belong to others.
TEST(Metrics, GrowsUnderItsOwnNameOnly) {
  TempDir dir;
  const std::string line = R"({"step":1,"loss":2.5})"
                           "\n";
  WriteText(dir / "other", line);
  std::filesystem::create_hard_link(dir / "other", dir / "a.jsonl");
  MetricsFile(dir / "a.jsonl", 1).Append(MetricsOf(2));
  EXPECT_EQ(ReadText(dir / "other"), line);
  EXPECT_TRUE(ReadText(dir / "a.jsonl").starts_with(line + R"({"step":2,)"));
  std::filesystem::create_symlink("other", dir / "b.jsonl");
  ExpectError([&] { MetricsFile(dir / "b.jsonl", 1); },
              "b.jsonl] can't be opened");
  EXPECT_EQ(ReadText(dir / "other"), line);
}

}  // namespace
}  // namespace onnx_fp8
