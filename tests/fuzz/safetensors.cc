// SPDX-License-Identifier: Apache-2.0
#include "data/safetensors.h"

#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"

namespace onnx_fp8 {
namespace {

void RequireSame(const TensorMap& a, const TensorMap& b) {
  bool same = a.size() == b.size();
  for (const auto& [name, tensor] : a) {
    same = same && b.contains(name) && Identical(tensor, b.at(name));
  }
  if (!same) throw std::logic_error("a written file reads as another");
}

}  // namespace

// Tensors that were read are written, and must read back the same.
void FuzzSafetensors(std::string_view bytes) {
  StringMap metadata, again;
  TensorMap tensors =
      ReadSafetensors(ScratchFile("a.safetensors", bytes), &metadata);
  Touch(tensors);
  std::string copy = ScratchFolder() + "/copy.safetensors";
  {
    OutputFile file(copy);
    WriteSafetensors(file, Sources(tensors), metadata);
  }
  RequireSame(tensors, ReadSafetensors(copy, &again));
  if (metadata != again) throw std::logic_error("metadata changed");
}

}  // namespace onnx_fp8
