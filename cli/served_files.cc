// SPDX-License-Identifier: Apache-2.0
#include "cli/served_files.h"

#include <filesystem>

#include "base/check.h"
#include "onnx_fp8/option_error.h"
#include "onnx_fp8/option_names.h"
#include "training/run/option.h"

namespace onnx_fp8 {
namespace {

ServedFormat FormatOf(const std::string& format) {
  if (format == "hf-fp8") return ServedFormat::kHuggingFaceFp8;
  if (format == "bf16") return ServedFormat::kBFloat16;
  if (format == "onnx-fp8") return ServedFormat::kOnnxFp8;
  throw OptionError(Concat("`format`: expected ",
                           Alternatives(SplitWords(kServedFormats, '|')),
                           ", got ", format));
}

}  // namespace

ServedFiles ServedFilesOf(const std::string& format, const std::string& option,
                          const std::string& path, const std::string& like,
                          bool external_data) {
  const ServedFiles files = {.format = FormatOf(format),
                             .path = path,
                             .like = like,
                             .external_data = external_data};
  const bool model = files.format == ServedFormat::kOnnxFp8;
  if (model && !like.empty()) {
    throw OptionError("`like` is for `format` hf-fp8 and bf16");
  }
  if (!model && external_data) {
    throw OptionError("`external_data` is for .onnx files");
  }
  const std::string end = std::filesystem::path(path).extension();
  const bool is_file = end == ".onnx" || end == ".safetensors";
  if (model ? end != ".onnx" : is_file) {
    throw OptionError(
        Concat(Reference(option), ": expected ",
               model ? "a name that ends in .onnx" : "the name of a folder",
               " for `format` ", format, ", got ", path));
  }
  return files;
}

}  // namespace onnx_fp8
