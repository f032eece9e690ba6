// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace onnx_fp8 {

// A new folder in $TMPDIR that is removed, with all its files, at the end.
class TemporaryFolder {
 public:
  // Errors: it can't be created.
  TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  std::string operator/(const std::string& name) const {
    return path_ + "/" + name;
  }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace onnx_fp8
