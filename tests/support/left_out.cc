// SPDX-License-Identifier: Apache-2.0
#include "tests/support/left_out.h"

#include <iostream>
#include <set>

namespace onnx_fp8 {

void LeaveOut(const std::string& what) {
  static std::set<std::string> said;
  if (said.insert(what).second) std::cerr << "left out: " << what << std::endl;
}

}  // namespace onnx_fp8
