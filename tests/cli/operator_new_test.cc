// SPDX-License-Identifier: Apache-2.0
#include "cli/operator_new.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

namespace onnx_fp8 {
namespace {

// AddressSanitizer has a `new` of its own.
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
              testing::ExitedWithCode(1), "onnx-fp8: .*memory");
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
