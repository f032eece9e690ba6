// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace onnx_fp8 {

// Progress of copying a model's data files beside a copy of the model: loaders
// refuse links and paths outside the model's folder.
struct ExternalCopy {
  std::string file;    // the file that is written or compared now
  bool there = false;  // the file exists already and is compared, not written
  uint64_t done = 0;   // bytes, of all files
  uint64_t total = 0;  // bytes, of all files
};

// Called at the start of each file, about every 64 MiB and at each file's end.
// An exception from it ends the copying; nothing of the open file is left.
using ExternalCopyObserver = std::function<void(const ExternalCopy&)>;

}  // namespace onnx_fp8
