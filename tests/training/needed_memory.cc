// SPDX-License-Identifier: Apache-2.0
#include "tests/training/needed_memory.h"

#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "base/check.h"

namespace onnx_fp8 {

NeededMemory MemoryNeeded(
    SessionOptions options,
    const std::function<void(const SessionOptions&)>& train) {
  options.memory = "1";
  try {
    train(options);
    ADD_FAILURE() << "a step fits into one byte";
  } catch (const Error& error) {
    const std::string text = error.what();
    const std::regex numbers(
        "into 1 bytes \\(`memory`\\), got one that needs (\\d+) bytes"
        "(?: \\(\\d+ of them in reserve\\))?"
        "(?: with all that helps computed again, and (\\d+) without it)?; ");
    std::smatch found;
    if (std::regex_search(text, found, numbers)) {
      const size_t least = std::stoul(found[1]);
      return {least, found[2].matched ? std::stoul(found[2]) : least};
    }
    ADD_FAILURE() << text;
  }
  return {};
}

}  // namespace onnx_fp8
