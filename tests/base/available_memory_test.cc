// SPDX-License-Identifier: Apache-2.0
#include "base/available_memory.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace onnx_fp8 {
namespace {

using TextByPath = std::map<std::string, std::string>;

size_t MemoryIn(const TextByPath& files) {
  return AvailableMemoryIn([&](const std::string& path) {
    auto it = files.find(path);
    return it == files.end() ? std::nullopt : std::optional(it->second);
  });
}

constexpr char kMachine[] =
    "MemTotal:       2000 kB\nMemFree:         100 kB\n"
    "MemAvailable:   1000 kB\n";
constexpr char kProcess[] = "Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t   24 kB\n";

TEST(AvailableMemory, AddsWhatTheProcessHolds) {
  EXPECT_EQ(MemoryIn({{"/proc/meminfo", kMachine}}), 1000u << 10);
  EXPECT_EQ(
      MemoryIn({{"/proc/meminfo", kMachine}, {"/proc/self/status", kProcess}}),
      1024u << 10);
}

TEST(AvailableMemory, NoMoreThanTheGroupAllows) {
  TextByPath files = {{"/proc/meminfo", kMachine},
                      {"/proc/self/status", kProcess},
                      {"/sys/fs/cgroup/memory.max", "500000\n"}};
  EXPECT_EQ(MemoryIn(files), 500000u);
  files["/sys/fs/cgroup/memory.max"] = "max\n";
  EXPECT_EQ(MemoryIn(files), 1024u << 10);
  files["/sys/fs/cgroup/memory/memory.limit_in_bytes"] = "400000\n";
  EXPECT_EQ(MemoryIn(files), 400000u);
}

TEST(AvailableMemory, IsNotKnownWithoutTheKernelsText) {
  EXPECT_EQ(MemoryIn({}), 0u);
  EXPECT_EQ(MemoryIn({{"/proc/meminfo", "MemAvailable: many kB\n"}}), 0u);
}

}  // namespace
}  // namespace onnx_fp8
