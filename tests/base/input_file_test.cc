// SPDX-License-Identifier: Apache-2.0
#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

// model/a.bin, model/deep/er/b.bin, and secret.bin beside model.
class InputFileTest : public testing::Test {
 protected:
  InputFileTest() {
    fs::create_directories(folder_ + "/deep/er");
    WriteText(folder_ + "/a.bin", "inside");
    WriteText(folder_ + "/deep/er/b.bin", "inside too");
    WriteText(dir_ / "secret.bin", "secret");
  }

  std::string Content(const std::string& location) {
    InputFile file(folder_, location);
    std::string text(file.size(), '\0');
    file.Read(text.data(), text.size(), 0);
    return text;
  }

  TempDir dir_;
  std::string folder_ = dir_ / "model";
};

TEST_F(InputFileTest, ReadsBelowAFolder) {
  EXPECT_EQ(Content("a.bin"), "inside");
  EXPECT_EQ(Content("./deep/./er/b.bin"), "inside too");
  ExpectError([&] { Content("none/b.bin"); },
              "[" + folder_ + "/none] can't be opened: No such file");
  ExpectError([&] { Content("a.bin/b.bin"); },
              "[" + folder_ + "/a.bin] can't be opened: Not a directory");
  ExpectError([&] { Content("deep"); }, "expected a regular file, got a fold");
}

// The user chooses the folder's own path; the file chooses the rest.
TEST_F(InputFileTest, FollowsLinksOnTheWayToTheFolderOnly) {
  fs::create_symlink("model", dir_ / "link");
  EXPECT_EQ(InputFile(dir_ / "link", "a.bin").size(), 6u);
  const std::string refused = " is a link, which may lead anywhere";
  fs::create_symlink("../secret.bin", folder_ + "/c.bin");
  ExpectError([&] { Content("c.bin"); }, "[" + folder_ + "/c.bin]" + refused);
  fs::create_symlink("er", folder_ + "/deep/same");
  ExpectError([&] { Content("deep/same/b.bin"); },
              "[" + folder_ + "/deep/same]" + refused);
  fs::create_symlink("..", folder_ + "/up");
  ExpectError([&] { Content("up/secret.bin"); },
              "[" + folder_ + "/up]" + refused);
}

TEST_F(InputFileTest, LeavesTheFolderOnNoWay) {
  for (const std::string& location :
       {std::string("../secret.bin"), std::string("deep/../../secret.bin"),
        std::string("deep/.."), dir_ / "secret.bin"}) {
    ExpectError([&] { Content(location); },
                "expected a path that stays in its folder");
  }
}

TEST_F(InputFileTest, WaitsForNoPipe) {
  ASSERT_EQ(mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  ExpectError([&] { Content("pipe"); }, "expected a regular file, got a devi");
  ExpectError([&] { InputFile file(folder_ + "/pipe"); },
              "expected a regular file, got a device or pipe");
}

TEST_F(InputFileTest, SaysThatItBecameShorter) {
  InputFile file(folder_ + "/a.bin");
  file.CheckWhole();
  fs::resize_file(folder_ + "/a.bin", 3);
  const std::string message =
      "[" + folder_ + "/a.bin] became shorter while it was read";
  char buffer[6];
  ExpectError([&] { file.Read(buffer, 6, 0); }, message);
  ExpectError([&] { file.CheckWhole(); }, message);
}

}  // namespace
}  // namespace onnx_fp8
