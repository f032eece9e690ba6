// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace onnx_fp8 {

// A file's bytes, mapped privately: reading is lazy, writing never reaches the
// file. The mapping lives as long as `owner`.
struct MappedFile {
  std::shared_ptr<void> owner;
  std::byte* data = nullptr;
  size_t size = 0;
};

// Errors: no such file, not a regular file, no permission; all name the path.
MappedFile MapFile(const std::string& path);

}  // namespace onnx_fp8
