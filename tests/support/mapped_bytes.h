// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace onnx_fp8 {

// Bytes of this process' shared mappings of files that were in the folder, by
// the system's list; whole pages.
inline size_t MappedBytesOf(const std::string& folder) {
  const std::string within = std::filesystem::canonical(folder).string() + "/";
  std::ifstream maps("/proc/self/maps");
  size_t bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    unsigned long begin = 0, end = 0;
    char rights[8] = "";
    if (std::sscanf(line.c_str(), "%lx-%lx %7s", &begin, &end, rights) != 3) {
      continue;
    }
    const bool ours = line.find(within) != std::string::npos;
    if (ours && std::string(rights) == "rw-s") bytes += end - begin;
  }
  return bytes;
}

}  // namespace onnx_fp8
