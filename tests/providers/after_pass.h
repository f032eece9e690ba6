// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "graph/onnx/verify.h"
#include "graph/print.h"
#include "providers/kernel.h"
#include "tests/graph/parse.h"

namespace onnx_fp8 {

// The text of a graph after a pass for those kernels. `text`: its inputs, nodes
// and outputs.
inline std::string AfterPass(const std::string& text,
                             void (*pass)(Graph&, const KernelRegistry&),
                             const KernelRegistry& kernels) {
  auto graph = ParseGraph("graph \"g\" opset 24\n" + text);
  pass(*graph, kernels);
  Verify(*graph);
  std::string after = Print(*graph);
  return after.substr(after.find('\n') + 1);
}

}  // namespace onnx_fp8
