// SPDX-License-Identifier: Apache-2.0
#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/mapped_file.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

void Write(const std::string& path, const std::string& text) {
  OutputFile file(path);
  file.Write(text.data(), text.size());
  file.Finish();
}

// A new folder lasts when the entry in its parent does.
TEST(MakeDirectoriesTest, BringsTheEntriesToTheDevice) {
  const TempDir dir;
  std::vector<std::string> done;
  const auto hook = [&](const std::string& operation) {
    done.push_back(operation);
  };
  for (const char* path : {"a/b/c", "a/b/c", "a/d/"}) {
    MakeDirectories(dir / path, hook);
  }
  const std::string a = dir / "a";
  EXPECT_EQ(done, (std::vector<std::string>{
                      "mkdir " + a + "/b/c",
                      "sync " + fs::path(a).parent_path().string(), "sync " + a,
                      "sync " + a + "/b", "mkdir " + a + "/b/c",
                      "mkdir " + a + "/d/", "sync " + a}));
}

// A file or link that somebody, or a killed process of the same number, may
// have left where a new file is made.
class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() { WriteText(victim_, "precious"); }

  void ExpectNewFile(const std::string& path) {
    EXPECT_EQ(ReadText(path), "new");
    EXPECT_FALSE(fs::is_symlink(path));
    EXPECT_EQ(fs::hard_link_count(path), 1u);
    EXPECT_EQ(ReadText(victim_), "precious");
  }

  TempDir dir_;
  std::string victim_ = dir_ / "victim", name_ = dir_ / "name";
};

TEST_F(OutputFileTest, SkippedBytesMayComeLater) {
  OutputFile file(victim_);
  file.Write("ab", 2);
  file.Skip(5);
  file.Write("z", 1);
  file.WriteAt(4, "mn", 2);
  file.WriteAt(2, "k", 1);
  file.Write("!", 1);
  EXPECT_EQ(file.size(), 9u);
  file.Finish();
  EXPECT_EQ(ReadText(victim_), std::string("abk\0mn\0z!", 9));
}

TEST_F(OutputFileTest, WritesThroughNoLink) {
  fs::create_symlink(victim_, name_);
  Write(name_, "new");
  ExpectNewFile(name_);
}

TEST_F(OutputFileTest, MakesNoFileThroughALink) {
  fs::create_symlink(dir_ / "elsewhere", name_);
  Write(name_, "new");
  ExpectNewFile(name_);
  EXPECT_FALSE(fs::exists(dir_ / "elsewhere"));
}

TEST_F(OutputFileTest, WritesIntoNoFileThatHasAnotherName) {
  fs::create_hard_link(victim_, name_);
  Write(name_, "new");
  ExpectNewFile(name_);
}

TEST_F(OutputFileTest, RemovesWhatAKilledProcessLeft) {
  WriteText(name_, "half of an older file");
  Write(name_, "new");
  ExpectNewFile(name_);
}

TEST_F(OutputFileTest, AFolderStays) {
  fs::create_directory(name_);
  ExpectError([&] { OutputFile file(name_); },
              "[" + name_ + "] can't be created: File exists");
  EXPECT_TRUE(fs::is_directory(name_));
}

TEST_F(OutputFileTest, ATemporaryNameIsNoLinkToFollow) {
  fs::create_symlink(victim_, TemporaryName(name_));
  WriteFileAtomically(name_, "new");
  ExpectNewFile(name_);
}

// A link to a folder counts too: a file in it would be made elsewhere.
TEST_F(OutputFileTest, ANewFolderIsNew) {
  fs::create_directory(dir_ / "elsewhere");
  fs::create_symlink("elsewhere", name_);
  ExpectError([&] { MakeNewDirectory(name_); },
              "[" + name_ + "] can't be created: File exists");
  MakeNewDirectory(dir_ / "new");
  EXPECT_TRUE(fs::is_directory(dir_ / "new"));
}

// If a program would get SIGBUS, the system's `write` returns an error.
TEST_F(OutputFileTest, NamesTheMappedFileThatBecameShorter) {
  WriteText(victim_, std::string(100'000, 'x'));
  MappedFile mapped = MapFile(victim_);
  fs::resize_file(victim_, 0);
  OutputFile file(name_);
  ExpectError([&] { file.Write(mapped.data, mapped.size); },
              "[" + victim_ + "] became shorter while it was read");
}

}  // namespace
}  // namespace onnx_fp8
