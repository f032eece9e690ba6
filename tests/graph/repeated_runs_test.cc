// SPDX-License-Identifier: Apache-2.0
#include "graph/repeated_runs.h"

#include <gtest/gtest.h>

#include <string>

namespace onnx_fp8 {
namespace {

// Runs of letters: "begin+length/period …".
std::string RunsIn(const std::string& letters, char needed = 0) {
  const std::vector<int> labels(letters.begin(), letters.end());
  std::string text;
  for (const RepeatedRun& run :
       FindRepeatedRuns(labels, [&](size_t begin, size_t end) {
         return needed == 0 ||
                letters.substr(begin, end - begin).find(needed) !=
                    std::string::npos;
       })) {
    text += (text.empty() ? "" : " ") + std::to_string(run.begin) + "+" +
            std::to_string(run.length) + "/" + std::to_string(run.period);
  }
  return text;
}

TEST(RepeatedRuns, TheLongestComesFirst) {
  EXPECT_EQ(RunsIn(""), "");
  EXPECT_EQ(RunsIn("abc"), "");
  EXPECT_EQ(RunsIn("aaaa"), "0+4/1");
  // "bb" repeats, too, but within a longer run.
  EXPECT_EQ(RunsIn("xabbabbabby"), "1+9/3");
  // The last block may be a part of one.
  EXPECT_EQ(RunsIn("xabcabcaby"), "1+8/3");
  EXPECT_EQ(RunsIn("aaxbcbcbcyaaa"), "0+2/1 3+6/2 10+3/1");
}

TEST(RepeatedRuns, BlocksThatCount) {
  EXPECT_EQ(RunsIn("aaaaabcbc", 'b'), "5+4/2");
  EXPECT_EQ(RunsIn("aaaaabcbc", 'd'), "");
}

}  // namespace
}  // namespace onnx_fp8
