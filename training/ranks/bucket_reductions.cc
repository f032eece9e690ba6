// SPDX-License-Identifier: Apache-2.0
#include "training/ranks/bucket_reductions.h"

#include <algorithm>
#include <list>
#include <ranges>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/op_facts.h"
#include "training/ranks/node_places.h"
#include "training/ranks/over_ranks.h"

namespace onnx_fp8 {
namespace {

// Sums in one bucket have the same of these.
using Kind = std::pair<std::string, DType>;

struct Bucket {
  Kind kind;
  std::vector<Node*> nodes;
  int64_t bytes = 0;
  std::unordered_set<const Value*> reached;  // depend on the nodes
};

// Joins sums over the ranks of one axis.
class Joiner {
 public:
  Joiner(Graph& graph, const std::string& axis, int64_t bytes, int64_t* number)
      : graph_(graph),
        places_(graph),
        axis_(axis),
        bytes_(bytes),
        number_(*number) {}

  void Run() {
    StartEarly();
    for (Node& node : graph_.nodes()) {
      const bool sum = IsSum(node);
      for (auto it = open_.begin(); it != open_.end();) {
        const auto bucket = it++;
        if (!Reaches(*bucket, node)) continue;
        if (sum) {
          Close(bucket);
        } else {
          bucket->reached.insert(node.outputs().begin(), node.outputs().end());
        }
      }
      if (sum) Add(&node);
    }
    while (!open_.empty()) Close(open_.begin());
    for (const std::vector<Node*>& nodes : closed_) Join(nodes);
    graph_.Sort();
  }

 private:
  bool IsSum(const Node& node) const {
    const Collective collective = FactsOf(node).collective;
    const bool sum = collective == Collective::kReduceScatter ||
                     (collective == Collective::kAllReduce &&
                      node.String("reduction", "") == "sum");
    return sum && node.String("group", "") == axis_;
  }

  // Each sum goes behind the node that makes its operand.
  void StartEarly() {
    std::unordered_map<const Node*, Node*> next;  // that is no sum
    Node* after = nullptr;
    for (Node* node : places_.order() | std::views::reverse) {
      next[node] = after;
      if (!IsSum(*node)) after = node;
    }
    for (Node* node : places_.order()) {
      if (!IsSum(*node) || !node->in(0)->producer) continue;
      places_.Move(node, next.at(node->in(0)->producer));
    }
  }

  bool Reaches(const Bucket& bucket, const Node& node) const {
    const auto reached = [&](const Value* v) {
      return bucket.reached.contains(v);
    };
    return std::ranges::any_of(node.inputs(), reached) ||
           (!node.Subgraphs().empty() &&
            std::ranges::any_of(graph_.CapturedBy(node), reached));
  }

  void Add(Node* node) {
    const Kind kind = {node->op, node->in(0)->dtype};
    const auto bytes = static_cast<int64_t>(BytesOf(*node->in(0)));
    auto it = std::ranges::find(open_, kind, &Bucket::kind);
    if (it != open_.end() && it->bytes + bytes > bytes_) {
      Close(it);
      it = open_.end();
    }
    if (it == open_.end()) it = open_.insert(it, {kind, {}, 0, {}});
    it->nodes.push_back(node);
    it->bytes += bytes;
    it->reached.insert(node->out(0));
  }

  void Close(std::list<Bucket>::iterator bucket) {
    if (bucket->nodes.size() > 1) closed_.push_back(std::move(bucket->nodes));
    open_.erase(bucket);
  }

  void Join(const std::vector<Node*>& nodes) {
    ++number_;
    for (Node* node : nodes) {
      node->attributes["bucket"] = number_;
      places_.Move(node, nodes.back());
    }
  }

  Graph& graph_;
  NodePlaces places_;
  const std::string axis_;
  const int64_t bytes_;
  int64_t& number_;         // of the last bucket
  std::list<Bucket> open_;  // of different kinds
  std::vector<std::vector<Node*>> closed_;
};

}  // namespace

int64_t DefaultBucketBytes(int64_t ranks) {
  constexpr int64_t kMebibyte = int64_t{1} << 20;
  return std::max(25 * kMebibyte, 2 * kMebibyte * ranks);
}

void BucketReductions(Graph& graph, int64_t bytes) {
  int64_t number = 0;
  for (const std::string& axis : kSampleAxes) {
    Joiner(graph, axis, bytes, &number).Run();
  }
}

}  // namespace onnx_fp8
