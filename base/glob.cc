// SPDX-License-Identifier: Apache-2.0
#include "base/glob.h"

#include <fnmatch.h>

namespace onnx_fp8 {

bool MatchesGlob(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
}

}  // namespace onnx_fp8
