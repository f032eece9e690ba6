// SPDX-License-Identifier: Apache-2.0
#include "providers/chain_collectives.h"

#include <algorithm>
#include <numeric>

#include "graph/op_facts.h"
#include "providers/order.h"

namespace onnx_fp8 {
namespace {

bool IsCollective(const Node* node) {
  return FactsOf(*node).kind == OpKind::kCollective;
}

}  // namespace

void ChainCollectives(const std::vector<const Node*>& nodes,
                      std::vector<std::pair<int, int>>* edges) {
  if (std::ranges::count_if(nodes, IsCollective) < 2) return;
  std::vector<int> given(nodes.size());
  std::iota(given.begin(), given.end(), 0);
  std::vector<InPlaceWrite> none;
  int last = -1;
  for (int step : OrderSteps(given, *edges, none)) {
    if (!IsCollective(nodes[static_cast<size_t>(step)])) continue;
    if (last >= 0) edges->emplace_back(last, step);
    last = step;
  }
}

void AddCollectiveResults(const std::vector<const Node*>& nodes,
                          std::vector<const Value*>* values) {
  for (const Node* node : nodes) {
    if (!IsCollective(node)) continue;
    for (const Value* value : node->outputs()) {
      if (value) values->push_back(value);
    }
  }
}

}  // namespace onnx_fp8
