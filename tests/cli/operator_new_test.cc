// SPDX-License-Identifier: Apache-2.0
#include "cli/operator_new.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <new>
#include <stdexcept>

#include "base/check.h"

namespace onnx_fp8 {
namespace {

// AddressSanitizer has its own `new`.
#ifndef __SANITIZE_ADDRESS__
constexpr size_t kTooMuch = size_t{1} << 60;

void Catch() {
  try {
    ::operator delete(::operator new(kTooMuch));
  } catch (const std::bad_alloc&) {
  }
}

void Throw() { throw std::runtime_error("something else"); }

TEST(OperatorNewDeathTest, MemoryThatNobodyCatchesEndsWithTheAmount) {
  EXPECT_EXIT([]() noexcept { ::operator delete(::operator new(kTooMuch)); }(),
              testing::ExitedWithCode(1),
              "onnx-fp8: out of memory: expected 1152921504606846976 bytes");
}

// Exits with 7 if some memory is left after `new` found none.
void TakeAllMemory() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlim_t now = static_cast<rlim_t>(pages * sysconf(_SC_PAGESIZE));
  rlimit limit = {now, now};
  Check(setrlimit(RLIMIT_AS, &limit) == 0, "no limit can be set");
  void* volatile taken = nullptr;
  do taken = std::malloc(16);
  while (taken);
  try {
    taken = ::operator new(16);
  } catch (const std::bad_alloc&) {
    taken = std::malloc(900 << 10);
    _exit(taken ? 7 : 8);
  }
}

TEST(OperatorNewDeathTest, LeavesRoomForTheMessage) {
  EXPECT_EXIT(TakeAllMemory(), testing::ExitedWithCode(7), "");
}

TEST(OperatorNewDeathTest, AnotherExceptionLaterIsNotOutOfMemory) {
  EXPECT_DEATH(
      []() noexcept {
        Catch();
        Throw();
      }(),
      "something else");
}
#endif  // __SANITIZE_ADDRESS__

}  // namespace
}  // namespace onnx_fp8
