// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace onnx_fp8 {

// A model's data files on their way beside a copy of it: loaders refuse links
// and paths outside the model's folder.
struct ExternalCopy {
  std::string file;    // the one that is being written
  bool there = false;  // instead it is compared: it is there already
  uint64_t done = 0;   // bytes, of all files
  uint64_t total = 0;  // bytes, of all files
};

// Told at the start of each file, about every 64 MiB and at each file's end.
// What it throws ends the copying, and nothing of the open file is left.
using ExternalCopyObserver = std::function<void(const ExternalCopy&)>;

}  // namespace onnx_fp8
