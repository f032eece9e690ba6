// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/descriptor.h"

namespace onnx_fp8 {

// A file that grows by whole records. A part of one that a full disk left is
// cut off.
class GrowingFile {
 public:
  // Opens or creates the file; with `is_new` no file may have the name. A link
  // is not followed. Errors: the system's, naming the file.
  explicit GrowingFile(const std::string& path, bool is_new = false);

  // Errors: the disk, naming the file.
  void Append(std::string_view record);

  // Brings all records to the device. Errors: the disk.
  void Sync();

 private:
  std::string path_;
  Descriptor fd_;
  int64_t size_ = 0;  // of all whole records
};

}  // namespace onnx_fp8
