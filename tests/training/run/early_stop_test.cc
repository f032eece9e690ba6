// SPDX-License-Identifier: Apache-2.0
#include "onnx_fp8/early_stop.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/training/files.h"
#include "training/run/validation_score.h"

namespace onnx_fp8 {
namespace {

TEST(EarlyStop, CountsValidationsThatAreNotBetter) {
  EarlyStop stop = ParseEarlyStop("2");
  EXPECT_EQ(stop.min_delta, 0);
  stop.Take(NAN, 1);
  EXPECT_EQ(stop.not_better, 1);
  stop.Take(-3, 2);
  EXPECT_EQ(stop.not_better, 0);
  stop.Take(-3, 3);  // equal is not better
  EXPECT_FALSE(stop.Ends());
  stop.Take(-2.75, 4);
  EXPECT_EQ(stop.best, -2.75);
  EXPECT_EQ(stop.best_step, 4);
  EXPECT_EQ(stop.not_better, 0);
  stop.Take(-3, 5);
  EXPECT_FALSE(stop.Ends());
  stop.Take(NAN, 6);
  EXPECT_TRUE(stop.Ends());
}

TEST(EarlyStop, BetterIsBeyondTheLeastDifference) {
  EarlyStop stop = ParseEarlyStop("1:0.25");
  stop.Take(0.5, 1);
  stop.Take(0.75, 2);
  EXPECT_TRUE(stop.Ends());
  stop.Take(1, 3);  // the best one is still 0.5
  EXPECT_FALSE(stop.Ends());
  EXPECT_EQ(stop.best_step, 3);
}

TEST(EarlyStop, NothingEndsWithoutPatience) {
  EarlyStop stop = ParseEarlyStop("");
  for (int step = 1; step < 9; ++step) stop.Take(0, step);
  EXPECT_FALSE(stop.Ends());
}

TEST(EarlyStop, RefusesOtherTexts) {
  for (const char* text :
       {"0", "-1", "many", "2:", ":0.1", "2:-0.1", "2:nan", "2:inf", "2.5",
        "2:0.1:3", "99999999999999999999", "2 "}) {
    ExpectError([&] { ParseEarlyStop(text); },
                "expected N or N:MIN_DELTA with an integer N of at least 1");
  }
}

TEST(EarlyStop, NotesKeepTheSameNumbers) {
  EarlyStop stop = ParseEarlyStop("3");
  stop.Take(-1.0 / 3, 7);
  stop.Take(-2, 8);
  std::map<std::string, std::string> notes;
  AddNotes(stop, "loss", &notes);
  EarlyStop again = ParseEarlyStop("5");
  ReadNotes(notes, "accuracy", "run", &again);  // another criterion
  EXPECT_EQ(again.not_better, 0);
  ReadNotes(notes, "loss", "run", &again);
  EXPECT_EQ(again.best, -1.0 / 3);
  EXPECT_EQ(again.best_step, 7);
  EXPECT_EQ(again.not_better, 1);
  // A run without a number so far.
  EarlyStop none = ParseEarlyStop("3");
  none.Take(NAN, 7);
  AddNotes(none, "loss", &notes);
  ReadNotes(notes, "loss", "run", &again);
  EXPECT_TRUE(std::isnan(again.best));
  EXPECT_EQ(again.not_better, 1);
  notes["early_stop.loss"] = "0.5 or so";
  ExpectError([&] { ReadNotes(notes, "loss", "run", &again); },
              "[run] expected a number as the checkpoint's note "
              "early_stop.loss, got \"0.5 or so\"");
  EarlyStop off;
  std::map<std::string, std::string> empty;
  AddNotes(off, "loss", &empty);
  EXPECT_TRUE(empty.empty());
}

}  // namespace
}  // namespace onnx_fp8
