// SPDX-License-Identifier: Apache-2.0
#include "cli/report/text.h"

#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <sstream>

#include "base/printable.h"
#include "cli/interrupt.h"
#include "cli/report/model_report.h"
#include "cli/report/progress.h"

namespace onnx_fp8 {
namespace {

TEST(TextTest, Formats) {
  EXPECT_EQ(ByteText(0), "0 B");
  EXPECT_EQ(ByteText(1023), "1023 B");
  EXPECT_EQ(ByteText(1536), "1.50 KiB");
  EXPECT_EQ(ByteText(size_t{3} << 30), "3.00 GiB");
  EXPECT_EQ(Grouped(7), "7");
  EXPECT_EQ(Grouped(1234567), "1,234,567");
  EXPECT_EQ(Grouped(-1234), "-1,234");
  EXPECT_EQ(Grouped(-123), "-123");
  EXPECT_EQ(DurationText(0.25), "0.2 s");
  EXPECT_EQ(DurationText(41.6), "42 s");
  EXPECT_EQ(DurationText(200), "3 min 20 s");
  EXPECT_EQ(DurationText(7500), "2 h 05 min");
  EXPECT_EQ(DurationText(1e300), "over a year");
}

TEST(TableTest, AlignsColumnsNumbersToTheRight) {
  Table table({"name", "size", "note"});
  table.Row({"blocks.0", "7", "é"});
  table.Row({"x", "1,000", "ab"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(),
            "  name       size  note\n"
            "  blocks.0      7  é\n"
            "  x         1,000  ab\n");
}

TEST(ProgressTest, Line) {
  ProgressStep step;
  step.step = 12;
  step.total = 100;
  step.loss = 2.302585;
  step.grad_norm = 1.25;
  step.lr = 0.001;
  step.per_second = 820.4;
  step.unit = "tokens";
  EXPECT_EQ(ProgressText(step),
            "step 12/100  loss 2.3026  grad norm 1.25  lr 0.001  820 tokens/s");
  step.seconds_left = 75;
  EXPECT_TRUE(ProgressText(step).ends_with("  ETA 1 min 15 s"));
  step.update_amax = 3071;
  EXPECT_EQ(ProgressText(step),
            "step 12/100  loss 2.3026  grad norm 1.25  update 3.07e+03  "
            "lr 0.001  820 tokens/s  ETA 1 min 15 s");
}

TEST(ProgressTest, LineOfACopy) {
  ExternalCopy copy{"out/w.bin", true, 0, 3u << 20};
  EXPECT_EQ(ProgressText(copy, 0), "comparing with out/w.bin  0 B of 3.00 MiB");
  copy.there = false;
  copy.done = 1u << 20;
  EXPECT_EQ(
      ProgressText(copy, 2),
      "copying to out/w.bin  1.00 MiB of 3.00 MiB  512.00 KiB/s  ETA 4.0 s");
}

TEST(ProgressDeathTest, CtrlCEndsACopy) {
  auto end = [] {
    Progress progress(std::cerr, false);
    ExternalCopyObserver observer = ShowCopies(progress);
    observer({"out/w.bin", false, 0, 10});
    std::raise(SIGINT);
    try {
      observer({"out/w.bin", false, 5, 10});
    } catch (const Interruption& error) {
      std::cerr << error.what();
      std::exit(7);
    }
  };
  EXPECT_EXIT(end(), testing::ExitedWithCode(7),
              "copying to out/w.bin  0 B of 10 B\n"
              "interrupted: .out/w.bin. is not written");
}

TEST(ProgressTest, NamesOneOfSeveralMeasurements) {
  ProgressCase one = {"linear", 2, 4, -1};
  EXPECT_EQ(ProgressText(one), "2/4  linear");
  one.seconds_left = 75;
  EXPECT_EQ(ProgressText(one), "2/4  linear  ETA 1 min 15 s");
}

TEST(ProgressTest, OtherTextsGetLinesOfTheirOwn) {
  std::ostringstream out;
  ProgressStep step;
  step.step = step.total = 1;
  {
    Progress progress(out, true);
    progress.Step(step);
    progress.Print("note");
  }
  EXPECT_EQ(out.str(), "\r" + ProgressText(step) + "\x1b[K\nnote\n");
}

TEST(TableTest, CellsStayInTheirLine) {
  Table table({"name"});
  table.Row({"a\nonnx-fp8: done\x1b[2J"});
  std::ostringstream out;
  table.Print(out);
  EXPECT_EQ(out.str(), "  name\n  a\\x0aonnx-fp8: done\\x1b[2J\n");
}

TEST(PrintableTest, EscapesWhatATerminalWouldObey) {
  EXPECT_EQ(Printable("ä… 😀\xef\xbf\xbd"), "ä… 😀\xef\xbf\xbd");
  EXPECT_EQ(Printable("a\x1b[2J\r\n\x7f"), "a\\x1b[2J\\x0d\\x0a\\u007f");
  EXPECT_EQ(Printable(std::string("a\0b", 3)), "a\\x00b");
  EXPECT_EQ(Printable("\xff\xc3"), "\\xff\\xc3");
  EXPECT_EQ(Printable("\xc2\x9b"), "\\u009b");
  EXPECT_EQ(Printable("a\xe2\x80\xae\xe2\x81\xa6z"), "a\\u202e\\u2066z");
  // A longer form of "/", half a character of UTF-16, beyond Unicode.
  EXPECT_EQ(Printable("\xe0\x80\xaf"), "\\xe0\\x80\\xaf");
  EXPECT_EQ(Printable("\xed\xa0\x80"), "\\xed\\xa0\\x80");
  EXPECT_EQ(Printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80");
  EXPECT_LT(Printable(std::string(1 << 20, 'x')).size(), 5000u);
}

TEST(PrintableTest, PartsOfAnOutput) {
  std::string_view rest;
  EXPECT_EQ(PrintableLines("a\n\x1b\xc2\x9b ä\xe2\x80", &rest),
            "a\n\\x1b\\u009b ä");
  EXPECT_EQ(rest, "\xe2\x80");
  EXPECT_LT(size_t{1} << 16,
            PrintableLines(std::string(1 << 17, 'x'), &rest).size());
}

TEST(GeneralizeTest, NamesTheAxesOfASize) {
  std::map<std::string, int64_t> a = {{"batch", 2}, {"seq", 4}};
  std::map<std::string, int64_t> b = {{"batch", 3}, {"seq", 5}};
  EXPECT_EQ(Generalize(64, 64, a, b).value, 64);
  EXPECT_EQ(Generalize(2, 3, a, b).text, "batch");
  EXPECT_EQ(Generalize(8, 15, a, b).text, "batch·seq");
  EXPECT_EQ(Generalize(24, 45, a, b).text, "3·batch·seq");
  EXPECT_EQ(Generalize(5, 6, a, b).text, "?");
  EXPECT_EQ(Generalize(2, 3, a, b).value, -1);
}

}  // namespace
}  // namespace onnx_fp8
