// SPDX-License-Identifier: Apache-2.0
#include "base/temporary_folder.h"

#include <stdlib.h>

#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace onnx_fp8 {

TemporaryFolder::TemporaryFolder() {
  std::error_code error;
  path_ = std::filesystem::temp_directory_path(error) / "onnx_fp8-XXXXXX";
  Check(!error && mkdtemp(path_.data()) != nullptr, "[", path_,
        "] can't be created: expected TMPDIR to name a folder for temporary "
        "files");
}

TemporaryFolder::~TemporaryFolder() { RemoveTree(path_); }

}  // namespace onnx_fp8
