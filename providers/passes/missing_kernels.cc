// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/missing_kernels.h"

#include "base/check.h"

namespace onnx_fp8 {

void MissingKernels::Add(const Node& node) {
  std::string op = node.domain.empty() ? node.op : node.domain + "." + node.op;
  auto it = ops_.emplace(op, std::pair(0, node.Where())).first;
  ++it->second.first;
}

void MissingKernels::CheckNone() const {
  std::string text;
  for (const auto& [op, nodes] : ops_) {
    text += Concat(text.empty() ? " " : "; ", op, ": ", nodes.first,
                   nodes.first == 1 ? " node, [" : " nodes, first [",
                   nodes.second, "]");
  }
  Check(text.empty(), "expected a kernel for every op, got none for", text);
}

}  // namespace onnx_fp8
