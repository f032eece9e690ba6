// SPDX-License-Identifier: Apache-2.0
#include "providers/plan/chain_collectives.h"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "graph/op_facts.h"
#include "providers/plan/order.h"

namespace onnx_fp8 {
namespace {

bool IsCollective(const Node* node) {
  return FactsOf(*node).kind == OpKind::kCollective;
}

bool InOneBucket(const Node& a, const Node& b) {
  return a.Int("bucket", 0) != 0 && a.Int("bucket", 0) == b.Int("bucket", 0) &&
         a.op == b.op && a.in(0)->dtype == b.in(0)->dtype &&
         a.Int("ranks", 1) == b.Int("ranks", 1) &&
         a.String("group", "") == b.String("group", "") &&
         a.String("reduction", "") == b.String("reduction", "");
}

// The first step of a call waits for the operands of all.
void WaitForAll(const std::vector<CollectiveCall>& calls, size_t steps,
                std::vector<std::pair<int, int>>* edges) {
  std::vector<int> first(steps);
  std::iota(first.begin(), first.end(), 0);
  for (const CollectiveCall& call : calls) {
    for (int step : call) first[static_cast<size_t>(step)] = call.front();
  }
  for (size_t i = 0, n = edges->size(); i < n; ++i) {
    const auto [from, to] = (*edges)[i];
    const int call = first[static_cast<size_t>(to)];
    if (call != to) edges->emplace_back(from, call);
  }
}

}  // namespace

std::vector<CollectiveCall> ChainCollectives(
    const std::vector<const Node*>& nodes,
    const std::vector<const KernelEntry*>& entries,
    std::vector<std::pair<int, int>>* edges) {
  std::vector<CollectiveCall> calls;
  if (std::ranges::none_of(nodes, IsCollective)) return calls;
  std::vector<int> given(nodes.size());
  std::iota(given.begin(), given.end(), 0);
  std::vector<InPlaceWrite> none;
  for (int step : OrderSteps(given, *edges, none)) {
    const auto i = static_cast<size_t>(step);
    if (!IsCollective(nodes[i])) continue;
    const bool joins =
        !calls.empty() && entries[i]->traits.many != nullptr &&
        InOneBucket(*nodes[static_cast<size_t>(calls.back()[0])], *nodes[i]);
    if (!joins) calls.emplace_back();
    calls.back().push_back(step);
  }
  WaitForAll(calls, nodes.size(), edges);
  int last = -1;
  for (const CollectiveCall& call : calls) {
    for (int step : call) {
      if (last >= 0) edges->emplace_back(last, step);
      last = step;
    }
  }
  return calls;
}

void PutSideBySide(const std::vector<CollectiveCall>& calls,
                   std::vector<int>* order) {
  std::unordered_map<int, const CollectiveCall*> call_of;
  for (const CollectiveCall& call : calls) {
    for (int step : call) call_of[step] = &call;
  }
  std::vector<int> moved;
  for (int step : *order) {
    const auto it = call_of.find(step);
    if (it == call_of.end()) {
      moved.push_back(step);
    } else if (step == it->second->front()) {
      moved.insert(moved.end(), it->second->begin(), it->second->end());
    }
  }
  *order = std::move(moved);
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
