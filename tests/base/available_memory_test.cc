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

// With the given files, in a group two folders down in both versions.
size_t MemoryInGroup(TextByPath files) {
  files["/proc/meminfo"] = kMachine;
  files["/proc/self/status"] = kProcess;
  files["/proc/self/cgroup"] = "0::/outer/own\n7:memory:/job\n5:cpu:/outer\n";
  files["/proc/self/mountinfo"] =
      "35 22 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
      "36 22 0:31 / /v1/memory rw - cgroup cgroup rw,memory\n"
      "37 22 0:32 / /v1/cpu rw - cgroup cgroup rw,cpu\n";
  return MemoryIn(files);
}

TEST(AvailableMemory, NoMoreThanTheGroupsAllow) {
  const size_t all = 1024 << 10;
  EXPECT_EQ(MemoryInGroup({}), all);
  for (const char* path :
       {"/sys/fs/cgroup/outer/own/memory.max",
        "/sys/fs/cgroup/outer/memory.max", "/sys/fs/cgroup/memory.max",
        "/v1/memory/job/memory.limit_in_bytes",
        "/v1/memory/memory.limit_in_bytes"}) {
    EXPECT_EQ(MemoryInGroup({{path, "500000\n"}}), 500000u) << path;
    EXPECT_EQ(MemoryInGroup({{path, "max\n"}}), all) << path;
    EXPECT_EQ(MemoryInGroup({{path, "9223372036854771712\n"}}), all) << path;
  }
  // The least of them counts; groups of others and of CPUs do not.
  EXPECT_EQ(
      MemoryInGroup({{"/sys/fs/cgroup/outer/own/memory.max", "500000\n"},
                     {"/sys/fs/cgroup/outer/memory.max", "400000\n"},
                     {"/sys/fs/cgroup/outer/other/memory.max", "300000\n"},
                     {"/v1/cpu/outer/memory.limit_in_bytes", "200000\n"}}),
      400000u);
}

TEST(AvailableMemory, IsNotKnownWithoutTheKernelsText) {
  EXPECT_EQ(MemoryIn({}), 0u);
  EXPECT_EQ(MemoryIn({{"/proc/meminfo", "MemAvailable: many kB\n"}}), 0u);
}

}  // namespace
}  // namespace onnx_fp8
