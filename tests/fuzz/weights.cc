// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <filesystem>

#include "data/scaled_weights.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"

namespace onnx_fp8 {
namespace {

constexpr std::string_view kBetweenParts = "\n====\n";
constexpr int64_t kMostDecoded = 1 << 16;  // elements

}  // namespace

// Three parts with kBetweenParts between them: an index, a config.json, and the
// shard a.safetensors.
void FuzzWeights(std::string_view bytes) {
  static const std::string folder = ScratchFolder() + "/weights";
  static const bool made = std::filesystem::create_directories(folder);
  static_cast<void>(made);
  std::array<std::string_view, 3> parts;
  for (std::string_view& part : parts) {
    const size_t end = std::min(bytes.find(kBetweenParts), bytes.size());
    part = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + kBetweenParts.size(), bytes.size()));
  }
  ScratchFile("weights/model.safetensors.index.json", parts[0]);
  ScratchFile("weights/config.json", parts[1]);
  ScratchFile("weights/a.safetensors", parts[2]);
  for (const auto& [name, weight] : DecodeScaled(ReadWeightFiles(folder))) {
    if (!IsSmall(weight.source.shape(), kMostDecoded)) continue;
    Touch(weight.source.Pull());
  }
}

}  // namespace onnx_fp8
