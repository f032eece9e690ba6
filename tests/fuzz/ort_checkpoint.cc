// SPDX-License-Identifier: Apache-2.0
#include "data/ort_checkpoint.h"

#include <stdexcept>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/scratch.h"

namespace onnx_fp8 {
namespace {

void RequireSameTensors(const NamedTensors& a, const NamedTensors& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) {
    Touch(a[i].second);
    same = a[i].first == b[i].first && Identical(a[i].second, b[i].second);
  }
  if (!same) throw std::logic_error("a written checkpoint reads as another");
}

}  // namespace

// A checkpoint that was read is written, and must read back the same.
void FuzzOrtCheckpoint(std::string_view bytes) {
  OrtCheckpoint read = ReadOrtCheckpoint(ScratchFile("checkpoint", bytes));
  std::string copy = ScratchFolder() + "/copy";
  WriteOrtCheckpoint(read, copy);
  OrtCheckpoint again = ReadOrtCheckpoint(copy);
  RequireSameTensors(read.trained, again.trained);
  RequireSameTensors(read.frozen, again.frozen);
  bool same = read.ints == again.ints && read.strings == again.strings &&
              read.groups.size() == again.groups.size();
  if (!same) throw std::logic_error("properties or groups changed");
}

}  // namespace onnx_fp8
