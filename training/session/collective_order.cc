// SPDX-License-Identifier: Apache-2.0
#include "training/session/collective_order.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "graph/op_facts.h"
#include "providers/plan/order.h"
#include "training/ranks/node_places.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {
namespace {

bool IsOverSamples(const Node& node) {
  return IsCollective(node) &&
         std::ranges::count(kSampleAxes, node.String("group", "")) > 0;
}

// Moves nodes so that they keep the edges (from, to) between positions.
void Reorder(Graph& graph, const std::vector<std::pair<int, int>>& edges) {
  NodePlaces places(graph);
  std::vector<int> given(places.order().size());
  std::iota(given.begin(), given.end(), 0);
  std::vector<InPlaceWrite> none;
  const std::vector<int> order = OrderSteps(given, edges, none);
  Check(order.size() == given.size(), "[", graph.file,
        "] expected collectives that can run in the order of rank 0");
  for (int node : order) {
    places.Move(places.order()[static_cast<size_t>(node)], nullptr);
  }
}

// Puts `node` right behind `first`, which has all operands of the node before
// it.
void PutBehind(NodePlaces& places, Node* first, Node* node) {
  places.Move(node, first);
  places.Move(first, node);
}

}  // namespace

void CollectiveOrder::Agree(StepKind kind, Graph& graph, bool is_new) {
  if (!IsNeeded(kind)) return;
  const Places mine = PlacesIn(graph);
  const Names names = NamesOf(mine);
  if (Most(is_new && !known_.contains(names)) != 0) {
    const Places first = OfFirstRank(mine);
    known_.try_emplace(NamesOf(first), first);
  }
  const auto common = known_.find(names);
  if (is_new && common != known_.end()) Follow(common->second, graph);
}

bool CollectiveOrder::IsNeeded(StepKind kind) const {
  const bool trains = TrainsOnSamples(kind) || kind == StepKind::kApply;
  return trains && ranks_ && ranks_->mesh().data_ranks() > 1;
}

int64_t CollectiveOrder::Most(int64_t mine) const {
  ranks_->world().AllReduce(Reduction::kMax, DType::kInt64, &mine, &mine, 1);
  return mine;
}

CollectiveOrder::Places CollectiveOrder::PlacesIn(const Graph& graph) {
  Places places;
  for (const Node& node : graph.nodes()) {
    if (IsOverSamples(node)) {
      places.push_back({node.out(0)->name, node.Int("bucket", 0)});
    }
  }
  return places;
}

CollectiveOrder::Names CollectiveOrder::NamesOf(const Places& places) {
  Names names;
  for (const Place& place : places) names.push_back(place.result);
  std::ranges::sort(names);
  return names;
}

CollectiveOrder::Places CollectiveOrder::OfFirstRank(const Places& mine) const {
  using Json = nlohmann::json;
  Json list = Json::array();
  for (const Place& place : mine) {
    list.push_back(Json::array({place.result, place.bucket}));
  }
  std::string bytes;
  Json::to_cbor(list, bytes);
  auto size = static_cast<int64_t>(bytes.size());
  ranks_->world().Broadcast(&size, sizeof size, 0);
  bytes.resize(static_cast<size_t>(size));
  ranks_->world().Broadcast(bytes.data(), bytes.size(), 0);
  Places places;
  for (const Json& entry : Json::from_cbor(bytes)) {
    places.push_back({entry[0], entry[1]});
  }
  return places;
}

void CollectiveOrder::Follow(const Places& places, Graph& graph) {
  std::unordered_map<const Node*, int> position;
  std::unordered_map<std::string, Node*> collectives;
  for (Node& node : graph.nodes()) {
    position.emplace(&node, static_cast<int>(position.size()));
    if (IsOverSamples(node)) collectives[node.out(0)->name] = &node;
  }
  std::vector<std::pair<int, int>> edges;
  const auto read = [&](const Value* value, const Node* reader) {
    if (!value || !value->producer) return;
    edges.emplace_back(position.at(value->producer), position.at(reader));
  };
  for (const Node& node : graph.nodes()) {
    for (const Value* value : node.inputs()) read(value, &node);
    if (node.Subgraphs().empty()) continue;
    for (const Value* value : graph.CapturedBy(node)) read(value, &node);
  }
  const Node *last = nullptr, *first = nullptr;  // the first of a bucket
  int64_t bucket = 0;
  for (const Place& place : places) {
    Node* node = collectives.at(place.result);
    node->attributes.erase("bucket");
    if (place.bucket != 0) node->attributes["bucket"] = place.bucket;
    if (last) edges.emplace_back(position.at(last), position.at(node));
    if (place.bucket == 0 || place.bucket != bucket) first = node;
    // A bucket begins when it has all operands.
    if (first != node) read(node->in(0), first);
    bucket = place.bucket;
    last = node;
  }
  Reorder(graph, edges);
  // A collective of other groups between them would make two calls of a bucket,
  // and not on all ranks.
  NodePlaces side_by_side(graph);
  for (size_t i = 1; i < places.size(); ++i) {
    const Place &before = places[i - 1], &place = places[i];
    if (place.bucket == 0 || place.bucket != before.bucket) continue;
    PutBehind(side_by_side, collectives.at(before.result),
              collectives.at(place.result));
  }
}

}  // namespace onnx_fp8
