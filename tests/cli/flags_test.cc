// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

using Words = std::vector<std::string>;

const Option kRows[] = {
    {"Own", "MODEL", OptionKind::kFile, ""},
    {"Own", "text", OptionKind::kText, "", "default"},
    {"Own", "choice", OptionKind::kChoice, "", "red", {.choices = "red|green"}},
    {"Own", "file", OptionKind::kFile, "", "", {.letter = "f"}},
    {"Own", "list", OptionKind::kList, ""},
    {"Own", "words", OptionKind::kWords, ""},
    {"Own", "files", OptionKind::kFiles, ""},
    {"Own", "count", OptionKind::kInt, "", "7", {.min = 1, .max = 99}},
    {"Own", "rate", OptionKind::kNumber, "", "0.5", {.min = 0}},
    {"Own", "on", OptionKind::kSwitch, ""},
    {"Own", "resume", OptionKind::kSwitch, "", "", {.replaces_model = true}},
};

Flags TestFlags() {
  return Flags(
      {"test", "A test.", {{"Options", {"Own"}}}, {"onnx-fp8 test model.onnx"}},
      kRows);
}

class FlagsTest : public testing::Test {
 protected:
  std::string Refusal(const Words& words) {
    return RefusalOf({.words = words});
  }
  std::string RefusalOf(const Arguments& arguments) {
    try {
      TestFlags().Parse(arguments);
    } catch (const OptionError& error) {
      return InFlags(error.what());
    }
    return "";
  }

  Flags flags_ = TestFlags();
};

TEST_F(FlagsTest, Parses) {
  ASSERT_TRUE(
      flags_.Parse({{"m.onnx", "--text=t=u", "--choice", "green", "--list",
                     "a,b", "--list", "c", "--words", "a,b", "--count", "3",
                     "--rate", "1e-3", "--on", "-f", "x"}}));
  EXPECT_EQ(flags_.Text("MODEL"), "m.onnx");
  EXPECT_EQ(flags_.Text("text"), "t=u");
  EXPECT_EQ(flags_.Text("choice"), "green");
  EXPECT_EQ(flags_.Text("file"), "x");
  EXPECT_EQ(flags_.List("list"), (Words{"a", "b", "c"}));
  EXPECT_EQ(flags_.List("words"), Words{"a,b"});
  EXPECT_EQ(flags_.Int("count"), 3);
  EXPECT_EQ(flags_.Number("rate"), 1e-3);
  EXPECT_TRUE(flags_.On("on"));
}

// A host gives numbers as such, and text for anything.
TEST_F(FlagsTest, TakesValues) {
  ASSERT_TRUE(flags_.Parse({.values = {{"MODEL", "m"},
                                       {"count", int64_t{3}},
                                       {"rate", int64_t{2}},
                                       {"list", "a,b"},
                                       {"words", Words{"a,b"}},
                                       {"text", int64_t{8}},
                                       {"on", true},
                                       {"resume", false}}}));
  EXPECT_EQ(flags_.Int("count"), 3);
  EXPECT_EQ(flags_.Number("rate"), 2);
  EXPECT_EQ(flags_.List("list"), (Words{"a", "b"}));
  EXPECT_EQ(flags_.List("words"), Words{"a,b"});
  EXPECT_EQ(flags_.Text("text"), "8");
  EXPECT_TRUE(flags_.On("on"));
  EXPECT_FALSE(flags_.Given("resume"));
}

TEST_F(FlagsTest, RefusesValues) {
  auto refusal = [&](const char* name, const OptionValue& value) {
    return RefusalOf({.values = {{name, value}}});
  };
  EXPECT_EQ(refusal("count", int64_t{0}),
            "--count: expected an integer of at least 1, got 0");
  EXPECT_EQ(refusal("count", int64_t{100}),
            "--count: expected at most 99, got 100");
  EXPECT_EQ(refusal("count", 1.5),
            "--count: expected an integer of at least 1, got 1.5");
  EXPECT_EQ(refusal("count", true), "--count: expected a value, got true");
  EXPECT_EQ(refusal("on", int64_t{1}), "--on: expected true or false, got 1");
  EXPECT_EQ(refusal("choice", "blue"),
            "--choice: expected red or green, got blue");
  EXPECT_EQ(refusal("cuont", int64_t{3}),
            "there is no option --cuont; did you mean --count?");
}

TEST_F(FlagsTest, LeavesDefaultsAlone) {
  ASSERT_TRUE(flags_.Parse({{"m.onnx"}}));
  EXPECT_EQ(flags_.Int("count"), 7);
  EXPECT_EQ(flags_.Text("choice"), "red");
  EXPECT_FALSE(flags_.Given("count"));
  EXPECT_TRUE(flags_.Given("MODEL"));
  flags_.Preset("count", "8");
  EXPECT_EQ(flags_.Int("count"), 8);
}

TEST_F(FlagsTest, FilesTakeSeveralWordsButNotTheArgument) {
  ASSERT_TRUE(flags_.Parse({{"--files", "a", "b", "--on", "m.onnx"}}));
  EXPECT_EQ(flags_.List("files"), (Words{"a", "b"}));
  EXPECT_EQ(flags_.Text("MODEL"), "m.onnx");
  Flags last = TestFlags();
  last.Parse({{"--files", "a", "b", "m.onnx"}});
  EXPECT_EQ(last.List("files"), (Words{"a", "b"}));
  EXPECT_EQ(last.Text("MODEL"), "m.onnx");
  Flags without = TestFlags();
  without.Parse({{"--resume", "--files", "a", "b"}});
  EXPECT_EQ(without.List("files"), (Words{"a", "b"}));
  EXPECT_FALSE(without.Has("MODEL"));
}

TEST_F(FlagsTest, Refuses) {
  EXPECT_EQ(Refusal({"m", "--cuont", "3"}),
            "there is no option --cuont; did you mean --count?");
  EXPECT_EQ(Refusal({"m", "--xyzzyxyzzy=3"}),
            "there is no option --xyzzyxyzzy");
  EXPECT_EQ(Refusal({"m", "-x"}), "there is no option -x");
  EXPECT_EQ(Refusal({"m", "n"}), "nothing expects the argument \"n\"");
  EXPECT_EQ(Refusal({"m", "--count", "0"}),
            "--count: expected an integer of at least 1, got 0");
  EXPECT_EQ(Refusal({"m", "--count", "1.5"}),
            "--count: expected an integer of at least 1, got 1.5");
  EXPECT_EQ(Refusal({"m", "--rate", "-0.1"}),
            "--rate: expected a number of at least 0, got -0.1");
  EXPECT_EQ(Refusal({"m", "--rate", "nan"}),
            "--rate: expected a number of at least 0, got nan");
  EXPECT_EQ(Refusal({"m", "--choice", "blue"}),
            "--choice: expected red or green, got blue");
  EXPECT_EQ(Refusal({"m", "--count"}), "--count: expected a value, got none");
  EXPECT_EQ(Refusal({"m", "--count", "1", "--count", "2"}),
            "--count: expected once, got 2 times");
  EXPECT_EQ(Refusal({"m", "--on=yes"}), "--on: expected no value, got yes");
}

TEST_F(FlagsTest, RequireNamesTheFirstThatIsMissing) {
  flags_.Parse({{"m", "--count", "3"}});
  EXPECT_NO_THROW(flags_.Require({"MODEL", "count"}));
  try {
    flags_.Require({"MODEL", "text", "rate"});
    FAIL();
  } catch (const OptionError& error) {
    EXPECT_STREQ(error.what(), "`text` is missing");
  }
}

TEST_F(FlagsTest, SavedFlagsComeBack) {
  flags_.Parse({{"m.onnx", "--list", "a,b", "--words", "x,y", "--rate", "0.25",
                 "--on", "--files", "data/../a.npz", "/b.npz"}});
  FlagMap saved = flags_.Saved();
  EXPECT_EQ(saved["--list"], (Words{"a", "b"}));
  EXPECT_EQ(saved["--on"], Words{});
  EXPECT_EQ(saved["--files"][1], "/b.npz");
  EXPECT_EQ(saved["--files"][0].front(), '/');
  EXPECT_TRUE(saved["--files"][0].ends_with("/a.npz"));

  Flags again = TestFlags();
  again.Parse({{"other.onnx", "--rate", "2"}});
  again.Fill(saved);
  EXPECT_EQ(again.Text("MODEL"), "other.onnx");
  EXPECT_EQ(again.Number("rate"), 2);
  EXPECT_EQ(again.List("list"), (Words{"a", "b"}));
  EXPECT_EQ(again.List("words"), Words{"x,y"});
  EXPECT_TRUE(again.On("on"));
  EXPECT_EQ(again.List("files"), saved["--files"]);
  EXPECT_FALSE(again.Given("on"));
  EXPECT_TRUE(again.Has("on"));
  FlagMap merged = again.Saved();
  EXPECT_EQ(merged["--rate"], Words{"2"});
  EXPECT_EQ(merged["--files"], saved["--files"]);
}

// This lets a user remove a list that a run has.
TEST_F(FlagsTest, AnEmptyWordEmptiesAList) {
  flags_.Parse({{"m", "--list", "", "--words", "", "--text", ""}});
  flags_.Fill({{"--list", {"a"}}, {"--words", {"b"}}, {"--text", {"c"}}});
  EXPECT_EQ(flags_.List("list"), Words{});
  EXPECT_EQ(flags_.List("words"), Words{});
  EXPECT_EQ(flags_.Text("text"), "");
  FlagMap saved = flags_.Saved();
  EXPECT_FALSE(saved.contains("--list") || saved.contains("--words"));
  Flags again = TestFlags();
  again.Parse({{"m"}});
  EXPECT_NO_THROW(again.Fill(saved));
}

TEST_F(FlagsTest, AnEmptyWordComesBack) {
  flags_.Parse({{"m", "--files", "", "a", "--text", ""}});
  FlagMap saved = flags_.Saved();
  EXPECT_EQ(saved["--text"], Words{""});
  Flags again = TestFlags();
  again.Parse({{"m"}});
  again.Fill(saved);
  EXPECT_EQ(again.Text("text"), "");
  EXPECT_EQ(again.List("files").size(), 2u);
  EXPECT_EQ(again.Saved(), saved);
}

TEST_F(FlagsTest, FillIgnoresFlagsOfOtherCommands) {
  flags_.Parse({{"m"}});
  EXPECT_NO_THROW(flags_.Fill({{"--unknown", {"1"}}, {"--count", {"5"}}}));
  EXPECT_EQ(flags_.Int("count"), 5);
  EXPECT_THROW(flags_.Fill({{"--count", {"many"}}}), OptionError);
  EXPECT_THROW(flags_.RequireKnown({{"--unknown", {}}}), OptionError);
  EXPECT_THROW(flags_.RequireKnown({{"--help", {}}}), OptionError);
}

TEST_F(FlagsTest, HelpHasFlagsAndExamples) {
  testing::internal::CaptureStdout();
  bool go_on = flags_.Parse({{"--help"}});
  std::string help = testing::internal::GetCapturedStdout();
  EXPECT_FALSE(go_on);
  for (const char* line :
       {"--count N               default: 7", "--text TEXT ", "--rate X ",
        "-f,--file PATH", "--files FILE...", "--list A,B,...", "--words TEXT",
        "--choice red|green"}) {
    EXPECT_NE(help.find(line), std::string::npos) << line << "\n" << help;
  }
  EXPECT_NE(help.find("onnx-fp8 test model.onnx"), std::string::npos);
}

TEST(ShellLineTest, QuotesWhatAShellWouldChange) {
  EXPECT_EQ(ShellLine({"onnx-fp8", "train", "--out", "my run"}),
            "onnx-fp8 train --out 'my run'");
  EXPECT_EQ(ShellLine({"a'b", "", "$x", "*"}), "'a'\\''b' '' '$x' '*'");
}

TEST(NearestTest, FindsOnlyWhatIsClose) {
  EXPECT_EQ(Nearest("trian", {"eval", "train"}), "train");
  EXPECT_EQ(Nearest("frobnicate", {"eval", "train"}), "");
}

}  // namespace
}  // namespace onnx_fp8
