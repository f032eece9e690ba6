// SPDX-License-Identifier: Apache-2.0
#include "providers/passes/join_loss_gradient.h"

#include <unordered_set>
#include <vector>

namespace onnx_fp8 {
namespace {

constexpr char kBothOp[] = "CrossEntropyWithGrad";
constexpr char kIgnored[] = "ignore_index";

// The gradient that alone reads the loss's lse; null if there is none.
Node* GradientOf(const Graph& graph, const Node& loss) {
  const Value* lse = loss.out(1);
  if (!lse || lse->uses.size() != 1 || IsReturned(graph, lse)) return nullptr;
  Node* reader = lse->uses[0];
  bool fits = reader->IsOurs("CrossEntropyGrad") && reader->in(2) == lse &&
              reader->in(1) == loss.in(0) && reader->in(3) == loss.in(1) &&
              reader->Int(kIgnored, 0) == loss.Int(kIgnored, 0);
  return fits ? reader : nullptr;
}

bool DependsOn(const Graph& graph, const Value* value, const Node& node) {
  std::unordered_set<const Node*> seen;
  std::vector<const Value*> left = {value};
  while (!left.empty()) {
    const Node* producer = left.back() ? left.back()->producer : nullptr;
    left.pop_back();
    if (producer == &node) return true;
    if (!producer || !seen.insert(producer).second) continue;
    for (const auto& read : {producer->inputs(), graph.CapturedBy(*producer)}) {
      left.insert(left.end(), read.begin(), read.end());
    }
  }
  return false;
}

void JoinBoth(Graph& graph, Node& loss, Node& gradient) {
  Node& joined =
      *graph.AddNode(kBothOp, {gradient.in(0), loss.in(0), loss.in(1)}, {},
                     loss.attributes, kDomain, &gradient);
  joined.name = loss.name;
  joined.metadata = loss.metadata;
  joined.part = loss.part;
  graph.MoveToNewOutput(loss.out(0), &joined, 0);
  graph.MoveToNewOutput(gradient.out(0), &joined, 1);
  graph.RemoveNode(&gradient);
  graph.RemoveNode(&loss);
}

}  // namespace

void JoinLossGradient(Graph& graph, const KernelRegistry& kernels) {
  if (!kernels.Find(kDomain, kBothOp)) return;
  std::vector<Node*> losses;
  for (Node& node : graph.nodes()) {
    if (node.IsOurs("CrossEntropy")) losses.push_back(&node);
  }
  bool joined = false;
  for (Node* loss : losses) {
    Node* gradient = GradientOf(graph, *loss);
    if (!gradient || DependsOn(graph, gradient->in(0), *loss)) continue;
    JoinBoth(graph, *loss, *gradient);
    joined = true;
  }
  if (joined) graph.Sort();
}

}  // namespace onnx_fp8
