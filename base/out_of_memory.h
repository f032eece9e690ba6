// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace onnx_fp8 {

// The message for a person when `bytes` more could not be had, and what to do.
// Takes no memory itself.
struct OutOfMemoryText {
  explicit OutOfMemoryText(size_t bytes);
  char text[192];
};

// Memory set aside for code that runs when there is no more: unwinding,
// messages. A program keeps some when it starts. Code that finds no more memory
// gives it back, any number of times, on any thread.
void KeepReserve();
void FreeReserve();

// Always throws OutOfMemoryText after `where`. Gives the reserve back.
[[noreturn]] void FailOutOfMemory(size_t bytes, const std::string& where = "");

}  // namespace onnx_fp8
