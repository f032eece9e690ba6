// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/gather_ahead.h"

#include <algorithm>
#include <map>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/dependence.h"
#include "graph/op_facts.h"
#include "training/ranks/gather_layers.h"
#include "training/ranks/node_places.h"

namespace onnx_fp8 {
namespace {

class Mover {
 public:
  Mover(Graph& graph, int64_t bytes)
      : graph_(graph), places_(graph), bytes_(bytes) {
    for (Node* node : places_.order()) {
      position_.emplace(node, position_.size());
      bucket_ = std::max(bucket_, node->Int("bucket", 0));
    }
  }

  void Run() {
    const auto layers = FindGatherLayers(places_.order(), bytes_);
    Node* begin = FirstOfBatch();
    size_t place = 0;
    for (size_t i = 0; i < layers.size(); ++i) {
      // Layers before … i - 1 do not count. The gathers start before the reader
      // of the layer in front of these, or before all that reads the batch.
      size_t before = i;
      int64_t between = 0;
      while (before > place &&
             2 * (between + layers[before - 1].bytes) < layers[i].bytes) {
        between += layers[--before].bytes;
      }
      place = before;
      Put(layers[i].gathers, before == 0 ? begin : layers[before - 1].reader);
    }
    graph_.Sort();
  }

 private:
  // The first node that does not depend on state alone: what the gathers need
  // of the nodes before it is there.
  Node* FirstOfBatch() const {
    std::unordered_set<const Value*> known;
    for (Node* node : places_.order()) {
      if (!DependsOnStateAlone(*node, known)) return node;
      if (FactsOf(*node).collective == Collective::kAllGather) continue;
      known.insert(node->outputs().begin(), node->outputs().end());
    }
    return nullptr;
  }

  // Puts gathers before `at`, side by side if they are one call.
  void Put(const std::vector<Node*>& gathers, Node* at) {
    std::map<std::string, std::vector<Node*>> calls;  // by group
    for (Node* gather : gathers) {
      MoveOperands(*gather, at);
      calls[gather->String("group", "")].push_back(gather);
    }
    for (const auto& [group, call] : calls) {
      const bool joins = bytes_ > 0 && call.size() > 1;
      if (joins) ++bucket_;
      for (Node* gather : call) {
        places_.Move(gather, at);
        if (joins) gather->attributes["bucket"] = bucket_;
      }
    }
  }

  // Puts what the node needs before `at`, if it stands behind.
  void MoveOperands(const Node& node, Node* at) {
    for (const Value* value : node.inputs()) {
      Node* producer = value ? value->producer : nullptr;
      if (!producer || position_.at(producer) <= position_.at(at)) continue;
      MoveOperands(*producer, at);
      places_.Move(producer, at);
      position_[producer] = position_.at(at);
    }
  }

  Graph& graph_;
  NodePlaces places_;
  const int64_t bytes_;
  int64_t bucket_ = 0;  // the last one
  std::unordered_map<const Node*, size_t> position_;
};

}  // namespace

void GatherAhead(Graph& graph, int64_t bytes) { Mover(graph, bytes).Run(); }

}  // namespace onnx_fp8
