// SPDX-License-Identifier: Apache-2.0
#include "base/file_memory.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "tests/support/mapped_bytes.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

// A page has 4 KiB on x86-64, and up to 64 KiB on aarch64.
const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
const size_t kTwoPages = 2 * kPage;

TEST(FileMemory, LiesInAFileWithoutAName) {
  TempDir dir;
  {
    auto memory = AllocateInFile(dir.path(), kTwoPages - 1);
    auto other = AllocateInFile(dir.path(), 1);
    EXPECT_EQ(MappedBytesOf(dir.path()), kTwoPages + kPage);
    EXPECT_TRUE(NamesIn(dir.path()).empty());
    auto* bytes = static_cast<char*>(memory.get());
    EXPECT_TRUE(std::all_of(bytes, bytes + kTwoPages - 1,
                            [](char byte) { return byte == 0; }));
    std::fill_n(bytes, kTwoPages - 1, 'a');
    EXPECT_EQ(*static_cast<char*>(other.get()), 0);
    EXPECT_EQ(bytes[kTwoPages - 2], 'a');
  }
  EXPECT_EQ(MappedBytesOf(dir.path()), 0u);
}

// Otherwise what the forked process writes would be its parent's. When it drops
// its copy of the pointer, it leaves alone what it has put there.
TEST(FileMemory, StaysWithTheProcessThatMadeIt) {
  TempDir dir;
  auto memory = AllocateInFile(dir.path(), kTwoPages);
  void* const place = memory.get();
  *static_cast<char*>(place) = 'a';
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    unsigned char pages[2];
    const bool lacks = mincore(place, kTwoPages, pages) != 0 && errno == ENOMEM;
    const void* own = mmap(place, kTwoPages, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    memory.reset();
    const bool stays = own == place && mincore(place, kTwoPages, pages) == 0;
    _exit(lacks && stays ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_EQ(*static_cast<char*>(place), 'a');
  memory.reset();
  EXPECT_EQ(MappedBytesOf(dir.path()), 0u);
}

TEST(FileMemory, OfNoFolderIsAnError) {
  TempDir dir;
  EXPECT_EQ(ErrorOf([&] { AllocateInFile(dir / "none", 1); }),
            "[" + (dir / "none") +
                "] expected a folder for new files: No such file or "
                "directory");
}

// A limit on file sizes acts like a full disk: the room is taken at once.
TEST(FileMemory, ADiskWithoutRoomIsAnError) {
  TempDir dir;
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit small{kTwoPages, before.rlim_max};
  auto handler = signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const std::string error =
      ErrorOf([&] { AllocateInFile(dir.path(), kTwoPages + 1); });
  const std::string fits =
      ErrorOf([&] { AllocateInFile(dir.path(), kTwoPages); });
  setrlimit(RLIMIT_FSIZE, &before);
  signal(SIGXFSZ, handler);
  EXPECT_EQ(error, "[" + dir.path() + "] expected room for " +
                       std::to_string(kTwoPages + 1) +
                       " bytes more: File too large");
  EXPECT_EQ(fits, "");
  EXPECT_TRUE(NamesIn(dir.path()).empty());
}

}  // namespace
}  // namespace onnx_fp8
