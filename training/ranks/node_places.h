// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <iterator>
#include <list>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"

namespace onnx_fp8 {

// Moves nodes of a graph to other places in its order. REQUIRES: no node comes
// or goes meanwhile.
class NodePlaces {
 public:
  explicit NodePlaces(Graph& graph) : nodes_(graph.nodes()) {
    for (auto it = nodes_.begin(); it != nodes_.end(); ++it) {
      at_[&*it] = it;
      order_.push_back(&*it);
    }
  }

  // In the order at the start.
  const std::vector<Node*>& order() const { return order_; }

  // Puts the node before `before`, or at the end.
  void Move(Node* node, Node* before) {
    if (node == before) return;
    nodes_.splice(before ? at_.at(before) : nodes_.end(), nodes_, at_.at(node));
  }

 private:
  std::list<Node>& nodes_;
  std::vector<Node*> order_;
  std::unordered_map<const Node*, std::list<Node>::iterator> at_;
};

}  // namespace onnx_fp8
