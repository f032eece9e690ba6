// SPDX-License-Identifier: Apache-2.0
#include "cli/output_place.h"

#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace onnx_fp8 {

void RequireFolderOf(const std::string& file) {
  auto folder = std::filesystem::absolute(file).parent_path();
  Check(IsFolder(folder), "[", file, "] can't be written: there is no folder ",
        folder.string());
}

}  // namespace onnx_fp8
