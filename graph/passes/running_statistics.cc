// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/running_statistics.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "graph/batch_statistics.h"
#include "graph/needed_when.h"

namespace onnx_fp8 {
namespace {

// The op moves the running variance by the variance of the batch's n elements.
// PyTorch moves it by the estimate, which is n / (n − 1) times as large. The op
// has added next − momentum · old.
Value* Unbiased(Builder& b, const Node& node, Value* old, Value* next) {
  const Value* x = node.in(0);
  int64_t n = NumElements(*x->shape) / std::max<int64_t>(x->dim(1), 1);
  if (n < 2) return next;
  Value* momentum = b.Scalar(node.Float("momentum", 0.9f), next);
  Value* added = b.Sub(next, b.Mul(old, momentum));
  Value* share = b.Scalar(1.0 / static_cast<double>(n - 1), next);
  return b.Add(next, b.Mul(added, share));
}

}  // namespace

void BindRunningStatistics(Graph& graph, Value* ok) {
  std::vector<Node*> norms;
  for (Node& node : graph.nodes()) {
    // A norm that the backward computes again has counted the batch before.
    if (NormalizesByBatch(node) && node.part != Part::kRecomputed) {
      norms.push_back(&node);
    }
  }
  std::vector<const Value*> roots(graph.outputs.begin(), graph.outputs.end());
  for (const StateBinding& binding : graph.state) {
    roots.push_back(binding.next);
  }
  NeededMap needed = NeededWhen(graph, roots);
  Builder b(graph, "statistics.");
  // State and its newest value: a layer that runs twice continues from there.
  std::vector<std::pair<Value*, Value*>> moved;
  for (Node* node : norms) {
    for (size_t i : {1, 2}) {
      Value* state = node->in(i + 2);
      if (!state || !IsState(state->role)) continue;
      auto known =
          std::ranges::find(moved, state, [](auto& m) { return m.first; });
      Value* old = known == moved.end() ? state : known->second;
      graph.SetInput(node, i + 2, old);
      Value* next = node->out(i);
      if (!next) {
        next = graph.AddOutput(node, i, graph.FreshName(state->name + ".new"));
        next->dtype = state->dtype;
        next->shape = state->shape;
      }
      if (i == 2) next = Unbiased(b, *node, old, next);
      next = Choose(b, ConditionsOf(needed, node), next, old);
      if (known == moved.end()) {
        moved.push_back({state, next});
      } else {
        known->second = next;
      }
    }
  }
  for (auto [state, next] : moved) {
    graph.state.push_back({state, b.Op("Where", {ok, next, state})});
  }
}

}  // namespace onnx_fp8
