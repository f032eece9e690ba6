// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/gather_ahead.h"

#include <algorithm>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/dependence.h"
#include "graph/op_facts.h"
#include "training/ranks/node_places.h"

namespace onnx_fp8 {
namespace {

struct Layer {
  std::vector<Node*> gathers;
  int64_t bytes = 0;
};

class Mover {
 public:
  explicit Mover(Graph& graph) : graph_(graph), places_(graph) {
    for (Node* node : places_.order())
      position_.emplace(node, position_.size());
  }

  void Run() {
    FindLayers();
    std::vector<size_t> readers;  // positions
    std::vector<int64_t> bytes;
    size_t place = 0;
    for (const auto& [reader, layer] : layers_) {
      // The gathers start before the reader of layer `before`, or before all.
      size_t before = readers.size();
      int64_t between = 0;
      while (before > place &&
             2 * (between + bytes[before - 1]) < layer.bytes) {
        between += bytes[--before];
      }
      place = before;
      Node* at = places_.order()[before == 0 ? 0 : readers[before - 1]];
      for (Node* gather : layer.gathers) Move(gather, at);
      readers.push_back(reader);
      bytes.push_back(layer.bytes);
    }
    graph_.Sort();
  }

 private:
  void FindLayers() {
    std::unordered_set<const Value*> known;
    for (Node* node : places_.order()) {
      if (!DependsOnStateAlone(*node, known)) continue;
      known.insert(node->outputs().begin(), node->outputs().end());
      if (FactsOf(*node).collective != Collective::kAllGather ||
          node->out(0)->uses.empty()) {
        continue;
      }
      size_t reader = position_.size();
      for (const Node* use : node->out(0)->uses) {
        reader = std::min(reader, position_.at(use));
      }
      Layer& layer = layers_[reader];
      layer.gathers.push_back(node);
      layer.bytes += static_cast<int64_t>(BytesOf(*node->out(0)));
    }
  }

  // Puts the node before `at`, behind what it needs.
  void Move(Node* node, Node* at) {
    if (position_.at(node) <= position_.at(at)) return;
    for (const Value* value : node->inputs()) {
      if (value && value->producer) Move(value->producer, at);
    }
    places_.Move(node, at);
    position_[node] = position_.at(at);
  }

  Graph& graph_;
  NodePlaces places_;
  std::unordered_map<const Node*, size_t> position_;
  std::map<size_t, Layer> layers_;  // by the position of the reader
};

}  // namespace

void GatherAhead(Graph& graph) { Mover(graph).Run(); }

}  // namespace onnx_fp8
