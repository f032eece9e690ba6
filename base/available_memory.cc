// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.h"

#include <algorithm>
#include <cstdint>
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

}  // namespace

size_t AvailableMemoryIn(const TextReader& read) {
  const size_t left =
      LineBytes(read("/proc/meminfo").value_or(""), "MemAvailable");
  if (left == 0) return 0;
  const size_t held =
      LineBytes(read("/proc/self/status").value_or(""), "VmRSS");
  size_t available = held + left;
  VisitCgroups(read, "memory", [&](bool v2, const std::string& folder) {
    const char* file = v2 ? "/memory.max" : "/memory.limit_in_bytes";
    // The word max is no limit.
    std::istringstream in(read(folder + file).value_or(""));
    uint64_t limit = 0;
    if (in >> limit && limit > 0) available = std::min(available, limit);
  });
  return available;
}

size_t AvailableMemory() { return AvailableMemoryIn(TextOfFile); }

}  // namespace onnx_fp8
