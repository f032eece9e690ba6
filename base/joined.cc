// SPDX-License-Identifier: Apache-2.0
#include "base/joined.h"

namespace onnx_fp8 {

std::string Joined(const std::vector<std::string>& words, size_t most) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += ", ";
    if (i == most) return text + "…";
    text += words[i];
  }
  return text;
}

}  // namespace onnx_fp8
