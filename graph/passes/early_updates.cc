// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/early_updates.h"

#include <algorithm>
#include <limits>
#include <list>
#include <ranges>
#include <unordered_map>
#include <utility>
#include <vector>

namespace onnx_fp8 {

void RunUpdatesEarly(Graph& graph) {
  std::unordered_set<const Node*> updates;
  for (const Node& node : graph.nodes()) {
    if (node.part == Part::kOptimizer) updates.insert(&node);
  }
  RunEarly(graph, updates);
}

void RunEarly(Graph& graph, const std::unordered_set<const Node*>& nodes) {
  graph.Sort();
  // Place of a node: the number of another node, or of the one behind which it
  // moves and its own number.
  using Place = std::pair<size_t, size_t>;
  std::unordered_map<const Node*, Place> place;
  size_t number = 0;
  for (const Node& node : graph.nodes()) {
    Place own = {++number, 0};
    if (nodes.contains(&node)) {
      own = {0, number};
      for (const Value* value : node.inputs()) {
        if (!value || !value->producer) continue;
        own.first = std::max(own.first, place.at(value->producer).first);
      }
    }
    place[&node] = own;
  }
  graph.nodes().sort([&](const Node& a, const Node& b) {
    return place.at(&a) < place.at(&b);
  });
}

void RunBeforeReaders(Graph& graph,
                      const std::unordered_set<const Node*>& nodes) {
  // Place of a node: its number, or the number of the one before which it moves
  // and its own.
  using Place = std::pair<size_t, size_t>;
  std::unordered_map<const Node*, Place> place;
  size_t number = graph.nodes().size();
  for (const Node& node : graph.nodes() | std::views::reverse) {
    constexpr size_t kNone = std::numeric_limits<size_t>::max();
    size_t first = kNone;
    bool moves = nodes.contains(&node);
    for (const Value* value : node.outputs()) {
      if (!value) continue;
      moves = moves && !IsReturned(graph, value);
      for (const Node* reader : value->uses) {
        moves = moves && nodes.contains(reader);
        if (moves) first = std::min(first, place.at(reader).first);
      }
    }
    place[&node] =
        moves && first != kNone ? Place(first, number) : Place(number, kNone);
    --number;
  }
  graph.nodes().sort([&](const Node& a, const Node& b) {
    return place.at(&a) < place.at(&b);
  });
}

}  // namespace onnx_fp8
