// SPDX-License-Identifier: Apache-2.0
#include "base/copy_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <vector>

#include "base/descriptor.h"
#include "base/file.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

std::string Bytes(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 7 % 251);
  return bytes;
}

// `bytes` and a hole, by turns; the file ends in a hole.
void WriteHoles(const std::string& path, const std::string& bytes,
                size_t hole) {
  OutputFile file(path);
  for (int i = 0; i < 2; ++i) {
    file.Write(bytes.data(), bytes.size());
    file.Skip(hole);
  }
}

int64_t Blocks(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0);
  return info.st_blocks;
}

size_t CountFiles(const TempDir& dir) {
  std::filesystem::directory_iterator entries(dir.path());
  return static_cast<size_t>(std::distance(begin(entries), end(entries)));
}

class CopyFileTest : public testing::Test {
 protected:
  TempDir dir_;
  std::string from_ = dir_ / "from", to_ = dir_ / "to";
};

TEST_F(CopyFileTest, BytesAndHolesStayWhatTheyAre) {
  WriteHoles(from_, Bytes(100'000), 2 * kMiB);
  CopyFileAtomically(InputFile(from_), to_);
  EXPECT_EQ(ReadText(to_), ReadText(from_));
  EXPECT_EQ(ReadText(to_).size(), 2 * (100'000 + 2 * kMiB));
  EXPECT_LE(Blocks(to_), Blocks(from_) + 64);
}

TEST_F(CopyFileTest, EmptyFileAndOneThatIsAHole) {
  WriteText(from_, "");
  CopyFileAtomically(InputFile(from_), to_);
  EXPECT_EQ(ReadText(to_), "");
  { OutputFile(from_).Skip(kMiB); }
  CopyFileAtomically(InputFile(from_), to_);
  EXPECT_EQ(ReadText(to_), std::string(kMiB, '\0'));
}

// The kernel does not copy between file systems; this file is in memory.
TEST_F(CopyFileTest, FromAnotherFileSystem) {
  int fd = memfd_create("from", MFD_CLOEXEC);
  ASSERT_GE(fd, 0);
  std::string bytes = Bytes(3 * kMiB + 5);
  ASSERT_EQ(write(fd, bytes.data(), bytes.size()),
            static_cast<ssize_t>(bytes.size()));
  CopyFileAtomically(InputFile("/proc/self/fd/" + std::to_string(fd)), to_);
  close(fd);
  EXPECT_EQ(ReadText(to_), bytes);
}

TEST_F(CopyFileTest, TellsItsProgress) {
  std::string bytes = Bytes(70 * kMiB);
  WriteText(from_, bytes);
  std::vector<uint64_t> told, compared;
  CopyFileAtomically(InputFile(from_), to_,
                     [&](uint64_t done) { told.push_back(done); });
  EXPECT_EQ(told, (std::vector<uint64_t>{64 * kMiB, 70 * kMiB}));
  EXPECT_TRUE(SameContent(InputFile(from_), InputFile(to_),
                          [&](uint64_t done) { compared.push_back(done); }));
  EXPECT_EQ(compared, told);
}

TEST_F(CopyFileTest, AnErrorLeavesTheOldFileAndNothingElse) {
  WriteText(from_, Bytes(1000));
  WriteText(to_, "old");
  for (std::string failing : {"create", "write", "sync", "rename"}) {
    auto hook = [&](const std::string& operation) {
      if (operation.starts_with(failing)) Fail("the disk is full");
    };
    ExpectError([&] { CopyFileAtomically(InputFile(from_), to_, {}, hook); },
                "the disk is full");
    EXPECT_EQ(ReadText(to_), "old");
    EXPECT_EQ(CountFiles(dir_), 2u) << failing;
  }
  ExpectError(
      [&] {
        CopyFileAtomically(InputFile(from_), to_,
                           [](uint64_t) { Fail("interrupted"); });
      },
      "interrupted");
  EXPECT_EQ(ReadText(to_), "old");
  EXPECT_EQ(CountFiles(dir_), 2u);
  ExpectError([&] { CopyFileAtomically(InputFile(dir_ / "none"), to_); },
              "/none] can't be opened: No such file");
}

// Behind its new end the file seems to be a hole.
TEST_F(CopyFileTest, ASourceThatIsCutIsNoHole) {
  WriteHoles(from_, Bytes(1000), kMiB);
  auto cut = [&](uint64_t) { std::filesystem::resize_file(from_, 10); };
  ExpectError([&] { CopyFileAtomically(InputFile(from_), to_, cut); },
              "[" + from_ + "] became shorter while it was read");
  EXPECT_EQ(CountFiles(dir_), 1u);
}

// At the end of the source the call copies nothing. An old EINTR in errno does
// not make it an interrupted call.
TEST_F(CopyFileTest, TheEndOfASourceIsNoInterruption) {
  WriteText(from_, "1234");
  Descriptor source(open(from_.c_str(), O_RDONLY));
  OutputFile file(to_);
  errno = EINTR;
  EXPECT_EQ(file.TakeFrom(source.get(), 4, 10), 0u);
}

TEST_F(CopyFileTest, SameContentSeesEveryByte) {
  std::string bytes = Bytes(kMiB + 3);
  WriteText(from_, bytes);
  WriteText(to_, bytes);
  EXPECT_TRUE(SameContent(InputFile(from_), InputFile(to_)));
  for (size_t at : {size_t{0}, kMiB - 1, kMiB, bytes.size() - 1}) {
    std::string other = bytes;
    other[at] ^= 1;
    WriteText(to_, other);
    EXPECT_FALSE(SameContent(InputFile(from_), InputFile(to_))) << at;
  }
  WriteText(to_, bytes + "x");
  EXPECT_FALSE(SameContent(InputFile(from_), InputFile(to_)));
  EXPECT_FALSE(SameContent(InputFile(to_), InputFile(from_)));
}

}  // namespace
}  // namespace onnx_fp8
