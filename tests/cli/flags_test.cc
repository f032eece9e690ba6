// SPDX-License-Identifier: Apache-2.0
#include "cli/flags.h"

#include <gtest/gtest.h>

namespace onnx_fp8 {
namespace {

struct Values {
  std::string model, text, choice = "red", file;
  std::vector<std::string> list, words, files;
  int64_t count = 7;
  double rate = 0.5;
  bool on = false;
};

class FlagsTest : public testing::Test {
 protected:
  FlagsTest() { Add(flags_, values_); }

  static void Add(Flags& flags, Values& v) {
    flags.Positional("MODEL", &v.model, "");
    flags.Text("--text", &v.text, "");
    flags.Choice("--choice", &v.choice, {"red", "green"}, "");
    flags.File("--file", &v.file, "");
    flags.List("--list", &v.list, "");
    flags.Words("--words", &v.words, "");
    flags.Files("--files", &v.files, "");
    flags.Int("--count", &v.count, 1, "");
    flags.Number("--rate", &v.rate, 0, "");
    flags.Switch("--on", &v.on, "");
    flags.Example("onnx-fp8 test model.onnx");
  }

  std::string Refusal(const Arguments& arguments) {
    try {
      flags_.Parse(arguments);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  }

  Flags flags_{"test", "A test."};
  Values values_;
};

using Strings = std::vector<std::string>;

TEST_F(FlagsTest, Parses) {
  ASSERT_TRUE(flags_.Parse({"m.onnx", "--text", "t", "--choice", "green",
                            "--list", "a,b", "--list", "c", "--words", "a,b",
                            "--count", "3", "--rate", "1e-3", "--on"}));
  EXPECT_EQ(values_.model, "m.onnx");
  EXPECT_EQ(values_.text, "t");
  EXPECT_EQ(values_.choice, "green");
  EXPECT_EQ(values_.list, (Strings{"a", "b", "c"}));
  EXPECT_EQ(values_.words, Strings{"a,b"});
  EXPECT_EQ(values_.count, 3);
  EXPECT_EQ(values_.rate, 1e-3);
  EXPECT_TRUE(values_.on);
}

TEST_F(FlagsTest, LeavesDefaultsAlone) {
  ASSERT_TRUE(flags_.Parse({"m.onnx"}));
  EXPECT_EQ(values_.count, 7);
  EXPECT_EQ(values_.choice, "red");
  EXPECT_FALSE(flags_.Given("--count"));
  EXPECT_TRUE(flags_.Given("MODEL"));
}

TEST_F(FlagsTest, FilesTakeSeveralWordsButNotThePositional) {
  ASSERT_TRUE(flags_.Parse({"--files", "a", "b", "--on", "m.onnx"}));
  EXPECT_EQ(values_.files, (Strings{"a", "b"}));
  EXPECT_EQ(values_.model, "m.onnx");
  ASSERT_TRUE(flags_.Parse({"--files", "a", "b", "m.onnx"}));
  EXPECT_EQ(values_.files, (Strings{"a", "b"}));
  EXPECT_EQ(values_.model, "m.onnx");
}

TEST_F(FlagsTest, Refuses) {
  EXPECT_EQ(Refusal({}), "MODEL is required");
  EXPECT_EQ(Refusal({"m", "--cuont", "3"}),
            "there is no flag --cuont; did you mean --count?");
  EXPECT_EQ(Refusal({"m", "--xyzzyxyzzy=3"}), "there is no flag --xyzzyxyzzy");
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
  EXPECT_NE(Refusal({"m", "--count"}), "");
}

TEST_F(FlagsTest, RequireNamesTheFirstThatIsMissing) {
  flags_.Parse({"m", "--count", "3"});
  EXPECT_NO_THROW(flags_.Require({"MODEL", "--count"}));
  try {
    flags_.Require({"MODEL", "--text", "--rate"});
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(error.what(), "--text is missing");
  }
}

TEST_F(FlagsTest, SavedFlagsComeBack) {
  flags_.Parse({"m.onnx", "--list", "a,b", "--words", "x,y", "--rate", "0.25",
                "--on", "--files", "data/../a.npz", "/b.npz"});
  FlagMap saved = flags_.Saved();
  EXPECT_EQ(saved["--list"], (Strings{"a", "b"}));
  EXPECT_EQ(saved["--on"], Strings{});
  EXPECT_EQ(saved["--files"][1], "/b.npz");
  EXPECT_EQ(saved["--files"][0].front(), '/');
  EXPECT_TRUE(saved["--files"][0].ends_with("/a.npz"));

  Flags again("test", "");
  Values v;
  Add(again, v);
  again.Parse({"other.onnx", "--rate", "2"});
  again.Fill(saved);
  EXPECT_EQ(v.model, "other.onnx");
  EXPECT_EQ(v.rate, 2);
  EXPECT_EQ(v.list, (Strings{"a", "b"}));
  EXPECT_EQ(v.words, Strings{"x,y"});
  EXPECT_TRUE(v.on);
  EXPECT_EQ(v.files, saved["--files"]);
  EXPECT_FALSE(again.Given("--on"));
  EXPECT_TRUE(again.Has("--on"));
  FlagMap merged = again.Saved();
  EXPECT_EQ(merged["--rate"], Strings{"2"});
  EXPECT_EQ(merged["--files"], saved["--files"]);
}

// This lets a user remove a list that a run has.
TEST_F(FlagsTest, AnEmptyWordEmptiesAList) {
  flags_.Parse({"m", "--list", "", "--words", "", "--text", ""});
  flags_.Fill({{"--list", {"a"}}, {"--words", {"b"}}, {"--text", {"c"}}});
  EXPECT_EQ(values_.list, Strings{});
  EXPECT_EQ(values_.words, Strings{});
  EXPECT_EQ(values_.text, "");
  FlagMap saved = flags_.Saved();
  EXPECT_FALSE(saved.contains("--list") || saved.contains("--words"));
  Flags again("test", "");
  Values v;
  Add(again, v);
  again.Parse({"m"});
  EXPECT_NO_THROW(again.Fill(saved));
}

TEST_F(FlagsTest, AnEmptyWordComesBack) {
  flags_.Parse({"m", "--files", "", "a", "--text", ""});
  FlagMap saved = flags_.Saved();
  EXPECT_EQ(saved["--text"], Strings{""});
  Flags again("test", "");
  Values v;
  Add(again, v);
  v.text = "default";
  again.Parse({"m"});
  again.Fill(saved);
  EXPECT_EQ(v.text, "");
  EXPECT_EQ(v.files.size(), 2u);
  EXPECT_EQ(again.Saved(), saved);
}

TEST_F(FlagsTest, FillIgnoresFlagsOfOtherCommands) {
  flags_.Parse({"m"});
  EXPECT_NO_THROW(flags_.Fill({{"--unknown", {"1"}}, {"--count", {"5"}}}));
  EXPECT_EQ(values_.count, 5);
  EXPECT_THROW(flags_.Fill({{"--count", {"many"}}}), UsageError);
}

TEST_F(FlagsTest, HelpHasFlagsAndExamples) {
  testing::internal::CaptureStdout();
  bool go_on = flags_.Parse({"--help"});
  std::string help = testing::internal::GetCapturedStdout();
  EXPECT_FALSE(go_on);
  EXPECT_NE(help.find("--count"), std::string::npos);
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
