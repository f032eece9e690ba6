// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/expand_missing.h"

#include <vector>

#include "base/check.h"
#include "graph/passes/expand.h"

namespace onnx_fp8 {
namespace {

// Bodies call functions that call functions; no ONNX op nests deeper than 3.
constexpr int kMaxDepth = 16;

bool OpHasBody(const std::string& op, const std::string& domain) {
  Graph scratch;
  return HasBody(*scratch.AddNode(op, {}, {}, {}, domain));
}

void CheckForced(const std::set<std::string>& forced) {
  const std::string prefix = std::string(kDomain) + ".";
  for (const std::string& name : forced) {
    bool ours = name.starts_with(prefix);
    bool known = ours ? OpHasBody(name.substr(prefix.size()), kDomain)
                      : OpHasBody(name, kDomain) || OpHasBody(name, "");
    Check(known, "`expand`: expected an op with a body in ONNX ops, got ",
          name);
  }
}

}  // namespace

void ExpandMissing(Graph& graph, const KernelRegistry& kernels,
                   const std::set<std::string>& forced,
                   const Evaluator* evaluator, const Budgets& budgets,
                   Missing missing) {
  CheckForced(forced);
  Spending spending(budgets);
  for (int depth = 0;; ++depth) {
    std::vector<Node*> todo;
    for (Node& node : graph.nodes()) {
      bool wanted = forced.contains(node.op) ||
                    forced.contains(node.domain + "." + node.op);
      if (missing == Missing::kExpand) {
        wanted |= !kernels.Find(node.domain, node.op);
      }
      if (wanted && HasBody(node)) todo.push_back(&node);
    }
    if (todo.empty()) return;
    Check(depth < kMaxDepth, "[", todo[0]->Where(),
          "] expected a body that ends, got one that calls itself");
    for (Node* node : todo) ExpandNode(graph, *node, evaluator, &spending);
  }
}

}  // namespace onnx_fp8
