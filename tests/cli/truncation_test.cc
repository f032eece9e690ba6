// SPDX-License-Identifier: Apache-2.0
#include "cli/truncation.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/mapped_file.h"
#include "tests/training/files.h"

namespace onnx_fp8 {
namespace {

constexpr size_t kSize = 100'000;

void Touch(const void* address) {
  volatile char byte = *static_cast<const volatile char*>(address);
  static_cast<void>(byte);
}

// Each test runs in a child process of its own.
class TruncationDeathTest : public testing::Test {
 protected:
  void TouchAfterCut(size_t left, size_t at) {
    WriteText(path_, std::string(kSize, 'x'));
    MappedFile file = MapFile(path_);
    std::filesystem::resize_file(path_, left);
    Touch(file.data + at);
  }
  // A mapped file that is not ours.
  void TouchForeign() {
    WriteText(path_, std::string(kSize, 'x'));
    int fd = open(path_.c_str(), O_RDONLY | O_CLOEXEC);
    void* data = mmap(nullptr, kSize, PROT_READ, MAP_PRIVATE, fd, 0);
    std::filesystem::resize_file(path_, 0);
    Touch(data);
  }

  TempDir dir_;
  std::string path_ = dir_ / "weights.bin";
};

TEST_F(TruncationDeathTest, NamesTheFileAndExits) {
  auto cut = [&] {
    CatchTruncation();
    CatchTruncation();
    TouchAfterCut(0, 0);
  };
  EXPECT_EXIT(cut(), testing::ExitedWithCode(1),
              "^onnx-fp8: \\[" + path_ +
                  "\\] became shorter while it was read, [^\n]*\n$");
  auto cut_behind = [&] {
    CatchTruncation();
    TouchAfterCut(kSize / 2, kSize - 1);
  };
  EXPECT_EXIT(cut_behind(), testing::ExitedWithCode(1), "became shorter");
}

// A terminal would obey them.
TEST_F(TruncationDeathTest, PrintsNoControls) {
  path_ = dir_ / "a\x1b[2J\xc2\x9bm\x7f\n é";
  auto cut = [&] {
    CatchTruncation();
    TouchAfterCut(0, 0);
  };
  EXPECT_EXIT(cut(), testing::ExitedWithCode(1), "/a\\?\\[2J.\\?m\\?\\? é\\]");
}

TEST_F(TruncationDeathTest, OtherFaultsKeepTheirEffect) {
  auto foreign = [&] {
    std::signal(SIGBUS, SIG_DFL);
    CatchTruncation();
    TouchForeign();
  };
  EXPECT_EXIT(foreign(), testing::KilledBySignal(SIGBUS), "^$");
  auto sent = [&] {
    std::signal(SIGBUS, SIG_DFL);
    CatchTruncation();
    raise(SIGBUS);
  };
  EXPECT_EXIT(sent(), testing::KilledBySignal(SIGBUS), "^$");
  auto handled = [&] {
    std::signal(SIGBUS, [](int) { _exit(42); });
    CatchTruncation();
    TouchForeign();
  };
  EXPECT_EXIT(handled(), testing::ExitedWithCode(42), "^$");
}

// A library leaves signals to its host program.
TEST_F(TruncationDeathTest, NobodyElseInstallsTheHandler) {
  auto cut = [&] {
    std::signal(SIGBUS, SIG_DFL);
    TouchAfterCut(0, 0);
  };
  EXPECT_EXIT(cut(), testing::KilledBySignal(SIGBUS), "^$");
}

}  // namespace
}  // namespace onnx_fp8
