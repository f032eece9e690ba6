// SPDX-License-Identifier: Apache-2.0
#include "data/data_files.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "data/token_index.h"

namespace onnx_fp8 {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> ShardsIn(const std::string& folder, DType dtype) {
  const std::string index = (fs::path(folder) / kTokenIndex).string();
  if (PathExists(index)) return ReadTokenIndex(index, dtype);
  std::vector<std::string> files;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  while (!error && entries != fs::directory_iterator()) {
    const std::string path = entries->path().string();
    if (path.ends_with(".bin") && IsRegularFile(path)) files.push_back(path);
    entries.increment(error);
  }
  Check(!error, "[", folder, "] can't be listed: ", error.message());
  Check(!files.empty(), "[", folder, "] expected a folder with ", kTokenIndex,
        " or token files (.bin), got neither");
  std::ranges::sort(files);
  return files;
}

std::vector<std::string> Fitting(const std::string& pattern) {
  glob_t found = {};
  const int status = glob(pattern.c_str(), GLOB_NOSORT, nullptr, &found);
  std::vector<std::string> files;
  if (status == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      if (IsRegularFile(found.gl_pathv[i])) files.push_back(found.gl_pathv[i]);
    }
  }
  globfree(&found);
  Check(status == 0 || status == GLOB_NOMATCH, "[", pattern,
        "] can't be looked up");
  Check(!files.empty(), "[", pattern,
        "] expected files that fit this pattern, got none");
  std::ranges::sort(files);
  return files;
}

}  // namespace

std::vector<std::string> DataFiles(const std::string& item, DType token_dtype) {
  if (IsFolder(item)) return ShardsIn(item, token_dtype);
  const bool pattern = item.find_first_of("*?[") != std::string::npos;
  if (pattern && !PathExists(item)) return Fitting(item);
  return {item};
}

}  // namespace onnx_fp8
