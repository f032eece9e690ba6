// SPDX-License-Identifier: Apache-2.0
#include "graph/node_cost.h"

#include <set>

#include "graph/op_facts.h"

namespace onnx_fp8 {

NodeCost CostOf(const Node& node) {
  NodeCost cost{.flops = FactsOf(node).flops(node)};
  std::set<const Value*> counted = {nullptr};
  for (const auto* values : {&node.inputs(), &node.outputs()}) {
    for (const Value* value : *values) {
      if (!counted.insert(value).second || !value->concrete()) continue;
      cost.bytes += static_cast<double>(BytesOf(*value));
    }
  }
  return cost;
}

}  // namespace onnx_fp8
