// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <set>
#include <string>

namespace onnx_fp8 {

// The state that does not lie in its provider's own memory: on a host it lies
// in files, and on a device in the host's memory.
struct StatePlaces {
  // Smaller tensors of a host stay in its memory: a file has whole pages, and
  // the system limits the number of mappings.
  static constexpr size_t kLeastInFile = size_t{64} << 10;

  std::string folder;             // of a host's files; "": there are none
  std::set<std::string> on_host;  // names of a device's state

  bool IsOutside(const std::string& name, size_t bytes) const {
    return folder.empty() ? on_host.contains(name) : bytes >= kLeastInFile;
  }
};

}  // namespace onnx_fp8
