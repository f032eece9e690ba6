// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fuse_activation.h"

#include <cmath>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/pattern.h"

namespace onnx_fp8 {
namespace {

constexpr double kRootHalf = 0.70710678118654752;
constexpr double kRootTwoByPi = 0.79788456080286536;
constexpr double kCubic = 0.044715;

// Whether both values have the same shape. Open axes are the same if both
// values are products of the same rows with matrices of the same width.
bool HaveOneShape(const Value* a, const Value* b) {
  if (a->shape != b->shape) return false;
  if (a->concrete()) return true;
  const auto product = [](const Value* x) -> const Node* {
    const Node* node = x->producer;
    while (node && node->Is("Add")) {
      const bool bias = !node->in(0)->producer;
      node = node->in(bias ? 1 : 0)->producer;
    }
    return node && (node->Is("MatMul") || node->Is("Gemm")) ? node : nullptr;
  };
  const Node *of_a = product(a), *of_b = product(b);
  return of_a && of_b && of_a->in(0) == of_b->in(0) && a->shape &&
         a->dim(-1) != -1;
}

bool Near(double x, double y) { return std::fabs(x - y) <= 1e-6 * y; }

// The x of √(2/π) (x + 0.044715 x³), however its powers are written; null if
// `u` has another form.
Value* TanhArgument(const Value* u) {
  if (!u->producer) return nullptr;
  auto outer = FactorOf(*u->producer);
  if (!outer || !Near(outer->first, kRootTwoByPi)) return nullptr;
  const Node* sum = outer->second->producer;
  if (!sum || !sum->Is("Add")) return nullptr;
  for (size_t i : {0, 1}) {
    Value* x = sum->in(i);
    const Node* scaled = sum->in(1 - i)->producer;
    auto factor = scaled ? FactorOf(*scaled) : std::nullopt;
    if (!factor || !Near(factor->first, kCubic)) continue;
    const Node* cube = factor->second->producer;
    if (!cube) continue;
    if (cube->Is("Pow") && cube->in(0) == x && IsNumber(cube->in(1), 3)) {
      return x;
    }
    if (!cube->Is("Mul")) continue;
    for (size_t j : {0, 1}) {  // x · (x · x)
      const Node* square = cube->in(1 - j)->producer;
      if (cube->in(j) != x || !square) continue;
      bool product =
          square->Is("Mul") && square->in(0) == x && square->in(1) == x;
      bool power =
          square->Is("Pow") && square->in(0) == x && IsNumber(square->in(1), 2);
      if (product || power) return x;
    }
  }
  return nullptr;
}

class ActivationFuser {
 public:
  explicit ActivationFuser(Graph& graph) : graph_(graph) {}

  void Visit(Node& node) {
    Value* y = node.out(0);
    if (node.Is("SwiGLU")) {
      Value *x = node.in(0), *gate = node.in(1);
      if (node.Float("alpha", 1) != 1 || gate->shape != x->shape) return;
      Builder b = BuilderFor(node);
      ReplaceWith(graph_, node, b.Ours("SwiGLU", {x, gate}));
    } else if (node.Is("Swish")) {
      if (node.Float("alpha", 1) != 1) return;
      Builder b = BuilderFor(node);
      Value* silu = b.Ours("Silu", {node.in(0)});
      ReplaceWith(graph_, node, silu);
      FuseGate(silu);
    } else if (node.Is("Sigmoid")) {
      Node* product = OnlyReader(graph_, y, "Mul");
      if (product && OtherOperand(*product, y) == node.in(0)) {
        Builder b = BuilderFor(*product);
        Value* silu = b.Ours("Silu", {node.in(0)});
        ReplaceWith(graph_, *product, silu);
        FuseGate(silu);
      }
    } else if (node.Is("Erf") && node.in(0)->producer) {
      auto z = FactorOf(*node.in(0)->producer);
      if (z && Near(z->first, kRootHalf)) FuseGelu(y, z->second, "none");
    } else if (node.Is("Tanh")) {
      if (Value* x = TanhArgument(node.in(0))) FuseGelu(y, x, "tanh");
    }
  }

 private:
  Builder BuilderFor(Node& last) {
    Builder b(graph_, last.out(0)->name + ".", &last);
    b.set_metadata(last.metadata);
    return b;
  }

  void FuseGate(Value* silu) {
    Node* product = OnlyReader(graph_, silu, "Mul");
    if (!product) return;
    Value *x = silu->producer->in(0), *gate = OtherOperand(*product, silu);
    if (gate == silu || gate->dtype != x->dtype || !HaveOneShape(gate, x)) {
      return;
    }
    Builder b = BuilderFor(*product);
    ReplaceWith(graph_, *product, b.Ours("SwiGLU", {x, gate}));
  }

  // t is erf or tanh: the product of 1 + t, x and 1/2 becomes Gelu(x).
  void FuseGelu(Value* t, Value* x, const char* approximate) {
    Node* last = OnlyReader(graph_, t, "Add");
    if (!last || !IsNumber(OtherOperand(*last, t), 1)) return;
    bool has_x = false, has_half = false;
    while (!has_x || !has_half) {
      Value* part = last->out(0);
      if (!IsReadOnce(graph_, part)) return;
      Node* next = part->uses[0];
      if (auto factor = FactorOf(*next); factor && factor->second == part) {
        if (has_half || factor->first != 0.5) return;
        has_half = true;
      } else if (next->Is("Mul") && next->in(0) != next->in(1)) {
        Value* other = OtherOperand(*next, part);
        auto half = other->producer ? FactorOf(*other->producer) : std::nullopt;
        if (has_x) return;
        if (!has_half && half && half->first == 0.5 && half->second == x) {
          has_half = true;
        } else if (other != x) {
          return;
        }
        has_x = true;
      } else {
        return;
      }
      last = next;
    }
    // Constants of more axes give their axes to the result.
    if (last->out(0)->shape != x->shape) return;
    Builder b = BuilderFor(*last);
    Value* y = b.Op("Gelu", {x}, {{"approximate", std::string(approximate)}});
    ReplaceWith(graph_, *last, y);
  }

  Graph& graph_;
};

}  // namespace

void FuseActivations(Graph& graph) {
  std::vector<Node*> found;
  for (Node& node : graph.nodes()) {
    if (node.Is("Sigmoid") || node.Is("Erf") || node.Is("Tanh") ||
        node.Is("Swish") || node.Is("SwiGLU")) {
      found.push_back(&node);
    }
  }
  ActivationFuser fuser(graph);
  for (Node* node : found) fuser.Visit(*node);
  if (!found.empty()) RemoveDeadCode(graph);
}

}  // namespace onnx_fp8
