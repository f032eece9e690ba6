// SPDX-License-Identifier: Apache-2.0
#include "cli/array_output.h"

#include <filesystem>

#include "data/npz_output.h"
#include "data/safetensors.h"
#include "onnx_fp8/option_error.h"

namespace onnx_fp8 {
namespace {

std::string Extension(const std::string& path) {
  return std::filesystem::path(path).extension().string();
}

}  // namespace

void RequireArrayPath(const std::string& path) {
  std::string extension = Extension(path);
  if (extension == ".npz" || extension == ".safetensors") return;
  throw OptionError(
      "`out`: expected a name that ends in .npz or "
      ".safetensors, got " +
      path);
}

void WriteArrays(const std::string& path, const TensorMap& arrays) {
  RequireArrayPath(path);
  if (Extension(path) == ".safetensors") {
    WriteSafetensors(path, Sources(arrays));
  } else {
    WriteNpz(path, arrays);
  }
}

}  // namespace onnx_fp8
