// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/scratch.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "base/temporary_folder.h"

namespace onnx_fp8 {
const std::string& ScratchFolder() {
  static TemporaryFolder folder;
  return folder.path();
}

std::string ScratchFile(const std::string& name, std::string_view bytes) {
  std::string path = ScratchFolder() + "/" + name;
  OutputFile file(path);
  file.Write(bytes.data(), bytes.size());
  return path;
}

void Touch(const Tensor& tensor) {
  volatile uint32_t sum = Crc32(tensor.raw(), tensor.bytes());
  static_cast<void>(sum);
}

void Touch(const TensorMap& tensors) {
  for (const auto& [name, tensor] : tensors) Touch(tensor);
}

bool IsSmall(const Shape& shape, int64_t limit) {
  int64_t size = 1;
  for (int64_t dim : shape) {
    if (dim < 0 || dim > limit) return false;
    size *= std::max<int64_t>(dim, 1);
    if (size > limit) return false;
  }
  return true;
}

}  // namespace onnx_fp8
