// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <filesystem>

#include "data/adapter_folder.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"

namespace onnx_fp8 {
namespace {

constexpr std::string_view kBehindConfig = "\n====\n";

}  // namespace

// Two parts with kBehindConfig between them: adapter_config.json and
// adapter_model.safetensors.
void FuzzAdapter(std::string_view bytes) {
  static const std::string folder = ScratchFolder() + "/adapter";
  static const bool made = std::filesystem::create_directories(folder);
  static_cast<void>(made);
  const size_t end = std::min(bytes.find(kBehindConfig), bytes.size());
  ScratchFile("adapter/adapter_config.json", bytes.substr(0, end));
  bytes.remove_prefix(std::min(end + kBehindConfig.size(), bytes.size()));
  ScratchFile("adapter/adapter_model.safetensors", bytes);
  const AdapterFolder read = ReadAdapterFolder(folder);
  for (const auto& [name, source] : read.adapters) Touch(source.Pull());
  for (const auto& [name, source] : read.parameters) Touch(source.Pull());
}

}  // namespace onnx_fp8
