// SPDX-License-Identifier: Apache-2.0
#include "data/json_lines.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/temporary_folder.h"

namespace onnx_fp8 {
namespace {

class JsonLinesTest : public testing::Test {
 protected:
  JsonLineCounts Read(const std::string& text) {
    WriteFileAtomically(folder_.path() + "/lines", text);
    steps_.clear();
    return ReadJsonLines(folder_.path(), "lines", [&](const auto& line) {
      steps_.push_back(line.Step());
    });
  }

  TemporaryFolder folder_;
  std::vector<int64_t> steps_;
};

TEST_F(JsonLinesTest, LeavesOutWhatIsTornOrHostile) {
  const std::string deep(100'000, '[');
  const auto counts = Read(
      "{\"step\":1,\"loss\":2}\n\nnot JSON\n[1]\n{\"step\":0}\n{\"step\":1.5}\n"
      "{\"step\":\"2\"}\n{\"step\":1e300}\n{\"loss\":1}\n{\"step\":3,\"a\":" +
      deep + "\n{\"step\":4,\"a\":[{\"step\":9}],\"b\":{\"step\":8}}\n" +
      "{\"step\":5,\"a\":\"" + std::string(3 << 20, 'x') + "\"}\n" +
      "{\"step\":6}\n{\"step\":7,\"lo");
  EXPECT_EQ(steps_, (std::vector<int64_t>{1, 4, 6}));
  EXPECT_EQ(counts.read, 3);
  EXPECT_EQ(counts.left_out, 10);
}

// Lines that cross the ends of what is read at once.
TEST_F(JsonLinesTest, ReadsAllLinesOfALongFile) {
  std::string text;
  for (int i = 1; i <= 40'000; ++i) {
    text += "{\"step\":" + std::to_string(i) + ",\"a\":\"" +
            std::string(static_cast<size_t>(i % 97), 'x') + "\"}\n";
  }
  ASSERT_GT(text.size(), size_t{2} << 20);
  EXPECT_EQ(Read(text).read, 40'000);
  for (size_t i = 0; i < steps_.size(); ++i) {
    ASSERT_EQ(steps_[i], static_cast<int64_t>(i + 1));
  }
}

TEST_F(JsonLinesTest, RefusesALink) {
  WriteFileAtomically(folder_.path() + "/other", "{\"step\":1}\n");
  std::filesystem::create_symlink("other", folder_.path() + "/lines");
  EXPECT_THROW(ReadJsonLines(folder_.path(), "lines", [](const auto&) {}),
               Error);
}

}  // namespace
}  // namespace onnx_fp8
