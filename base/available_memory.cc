// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

namespace onnx_fp8 {
namespace {

// Bytes of the line "NAME:  number kB"; 0: there is none.
size_t LineBytes(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(name + ":")) continue;
    std::istringstream in(line.substr(name.size() + 1));
    uint64_t kibibytes = 0;
    return in >> kibibytes ? kibibytes << 10 : 0;
  }
  return 0;
}

std::optional<std::string> TextOf(const std::string& path) {
  std::ifstream in(path);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

size_t AvailableMemoryIn(const TextReader& read) {
  const size_t left =
      LineBytes(read("/proc/meminfo").value_or(""), "MemAvailable");
  if (left == 0) return 0;
  const size_t held =
      LineBytes(read("/proc/self/status").value_or(""), "VmRSS");
  size_t available = held + left;
  for (const char* path : {"/sys/fs/cgroup/memory.max",
                           "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    // The word max is no limit.
    std::istringstream in(read(path).value_or(""));
    uint64_t limit = 0;
    if (in >> limit && limit > 0) available = std::min(available, limit);
  }
  return available;
}

size_t AvailableMemory() { return AvailableMemoryIn(TextOf); }

}  // namespace onnx_fp8
