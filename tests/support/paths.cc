// SPDX-License-Identifier: Apache-2.0
#include "tests/support/paths.h"

namespace onnx_fp8 {

std::string SourcePath(const std::string& name) {
  return std::string(ONNX_FP8_SOURCE_DIR "/") + name;
}

std::string NodeCasesFolder() { return ONNX_FP8_NODE_CASES; }

}  // namespace onnx_fp8
