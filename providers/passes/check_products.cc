// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/check_products.h"

#include <string>

#include "base/check.h"
#include "graph/node_notes.h"

namespace onnx_fp8 {
namespace {

// The items of a recipe that say in which format the operands of a product are,
// by its role in training.
std::string ItemsOf(const Node& product) {
  std::string role = NodeNote(product, "role");
  if (role == "forward") return "i or w";
  if (role == "dgrad") return "go or w_gi";
  if (role == "wgrad") return "go_gw or i_gw";
  return "one operand";
}

}  // namespace

void CheckProducts(const Graph& graph, const KernelRegistry& kernels) {
  for (const Node& node : graph.nodes()) {
    const KernelEntry* entry = kernels.Find(node.domain, node.op);
    if (!entry || !entry->traits.one_e5m2) continue;
    Check(
        node.in(0)->dtype != DType::kE5M2 || node.in(2)->dtype != DType::kE5M2,
        "[", node.Where(),
        "] expected one operand at most in float8e5m2, because CUDA has no "
        "other products, got two: make ",
        ItemsOf(node), " e4m3 in the recipe");
  }
}

}  // namespace onnx_fp8
