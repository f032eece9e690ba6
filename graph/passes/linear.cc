// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/linear.h"

#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/pattern.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

class Normalizer {
 public:
  // Looks at all views once: a long chain of them may have many readers.
  explicit Normalizer(Graph& graph) : graph_(graph) {
    for (const Value* value : graph.Initializers()) {
      if (value->role == Role::kParameter || value->role == Role::kFrozen) {
        weights_.insert(value);
      }
    }
    for (const Node& node : graph.nodes()) {
      if (IsViewOp(node)) AddView(node);
    }
  }

  void Visit(Node& node) {
    if (node.Is("Gemm")) {
      FoldGemm(node);
    } else if (node.Is("MatMul") && node.in(0)->rank() >= 2 &&
               node.in(1)->rank() >= 2) {
      if (IsWeight(node.in(1))) {
        WeightRight(node);
      } else if (IsWeight(node.in(0))) {
        WeightLeft(node);
      }
    }
  }

 private:
  // A parameter, or a value that views make of one.
  bool IsWeight(const Value* value) const {
    return value->rank() == 2 && weights_.contains(value);
  }

  // A chain of Transposes: its first node, and whether the chain transposes. A
  // visit may replace the first node's operand, so the operand is read late.
  struct Transposes {
    const Node* first;
    bool odd;
  };

  // The matrix that Transposes have made the value of.
  Matrix Peeled(Value* value) const {
    auto known = transposes_.find(value);
    if (known == transposes_.end()) return {value};
    return {known->second.first->in(0), known->second.odd};
  }

  void AddView(const Node& node) {
    for (size_t i = 0; i < MovedOperands(node); ++i) {
      if (!node.in(i) || !weights_.contains(node.in(i))) continue;
      for (const Value* out : node.outputs()) weights_.insert(out);
    }
    const Value* y = node.out(0);
    if (!node.Is("Transpose") || y->rank() != 2) return;
    auto before = transposes_.find(node.in(0));
    Transposes all =
        before == transposes_.end() ? Transposes{&node, false} : before->second;
    all.odd ^= node.Ints("perm", {1, 0}) == std::vector<int64_t>{1, 0};
    transposes_.emplace(y, all);
  }

  void FoldGemm(Node& node) {
    for (size_t i : {0, 1}) {
      const char* flag = i == 0 ? "transA" : "transB";
      Matrix operand = Peeled(node.in(i));
      if (operand.value == node.in(i)) continue;
      int64_t old = node.Int(flag, 0);
      node.attributes[flag] = int64_t{operand.transposed ? !old : old};
      graph_.SetInput(&node, i, operand.value);
    }
  }

  // x (…,K) as (M,K); one Reshape for all readers of x.
  Value* Flatten(Builder& b, Value* x) {
    if (x->rank() == 2) return x;
    Value*& flat = flat_[x];
    if (!flat) {
      int64_t k = x->dim(-1);
      int64_t m = NumElements({x->shape->data(), x->shape->size() - 1});
      flat = b.Reshape(x, {m, k});
    }
    return flat;
  }

  // The Add that adds a vector to `node`'s only result, and that vector.
  std::pair<Node*, Value*> Bias(const Node& node) {
    Value* y = node.out(0);
    if (!IsReadOnce(graph_, y)) return {};
    Node* add = y->uses[0];
    if (!add->Is("Add")) return {};
    Value* bias = add->in(0) == y ? add->in(1) : add->in(0);
    bool vector = bias->rank() == 1 && bias->dim(0) == y->dim(-1) &&
                  bias->dtype == y->dtype;
    // The vector must exist before the product is computed.
    bool early = bias->producer == nullptr;
    if (!vector || !early) return {};
    return {add, bias};
  }

  void WeightRight(Node& node) {
    Builder b(graph_, node.out(0)->name + ".", &node);
    b.set_metadata(node.metadata);
    auto [weight, transposed] = Peeled(node.in(1));
    Value* x = Flatten(b, node.in(0));
    auto [add, bias] = Bias(node);
    std::vector<Value*> in = {x, weight};
    if (bias) in.push_back(bias);
    Attributes attributes = {{"transB", int64_t{transposed}}};
    Value* y = b.Op("Gemm", in, attributes);
    y->producer->name = node.name;
    Node& last = add ? *add : node;
    ReplaceWith(graph_, last, b.Reshape(y, *last.out(0)->shape));
    if (add) graph_.RemoveNode(&node);
  }

  // W (N,K) @ x (…,K,T) → ((…,T,K) @ W^T)^T.
  void WeightLeft(Node& node) {
    Builder b(graph_, node.out(0)->name + ".", &node);
    b.set_metadata(node.metadata);
    auto [weight, transposed] = Peeled(node.in(0));
    Value* x = node.in(1);
    if (x->rank() == 2) {
      Value* y = b.Op("Gemm", {weight, x}, {{"transA", int64_t{transposed}}});
      y->producer->name = node.name;
      ReplaceWith(graph_, node, y);
      return;
    }
    Value* xt = Flatten(b, b.SwapLast(x));
    Value* yt = b.Op("Gemm", {xt, weight}, {{"transB", int64_t{!transposed}}});
    yt->producer->name = node.name;
    Shape shape = *node.out(0)->shape;
    std::swap(shape[shape.size() - 1], shape[shape.size() - 2]);
    ReplaceWith(graph_, node, b.SwapLast(b.Reshape(yt, shape)));
  }

  Graph& graph_;
  std::map<Value*, Value*> flat_;
  std::unordered_set<const Value*> weights_;
  std::unordered_map<const Value*, Transposes> transposes_;
};

}  // namespace

void NormalizeLinear(Graph& graph) {
  Normalizer normalizer(graph);
  // A visit removes the node itself and may remove the Add behind it.
  auto& nodes = graph.nodes();
  std::vector<Node*> products;
  for (Node& node : nodes) {
    if (node.Is("MatMul") || node.Is("Gemm")) products.push_back(&node);
  }
  for (Node* node : products) normalizer.Visit(*node);
}

}  // namespace onnx_fp8
