// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/fused_roundings.h"

#include <algorithm>
#include <vector>

#include "graph/builder.h"
#include "graph/constants.h"
#include "graph/passes/dead_code.h"
#include "graph/passes/fuse_activation.h"
#include "graph/passes/pattern.h"
#include "graph/views.h"

namespace onnx_fp8 {
namespace {

bool HasRank(const Value& value, int64_t rank) {
  return !value.shape || value.rank() == rank;
}

bool IsLastAxis(const Value& value, int64_t axis) {
  return axis == -1 || (value.shape && axis == value.rank() - 1);
}

// Whether both ranks are known, and all axes are equal, open ones too.
bool HaveKnownShape(const Value& a, const Value& b) {
  return a.shape && a.shape == b.shape;
}

// Turns Constant nodes and casts of single numbers into initializers: a search
// for a pattern reads its numbers there.
void KnowNumbers(Graph& graph) {
  LiftConstants(graph);
  const std::vector<Value*> captured = graph.CapturedBySubgraphs();
  std::vector<Node*> nodes;
  for (Node& node : graph.nodes()) nodes.push_back(&node);
  for (Node* node : nodes) {
    if (!node->Is("Cast") && !node->Is("CastLike")) continue;
    const Value* x = node->in(0);
    Value* y = node->out(0);
    const bool number = x->is_constant() && x->data.size() == 1 &&
                        IsFloat(x->dtype) && y->dtype == DType::kFloat;
    if (!number || IsReturned(graph, y)) continue;
    if (std::ranges::count(captured, y) > 0) continue;
    graph.ReplaceUses(y,
                      graph.AddInitializer(graph.FreshName(y->name + ".number"),
                                           ConvertTo(x->data, y->dtype)));
    graph.RemoveNode(node);
  }
}

class RoundingFinder {
 public:
  RoundingFinder(Graph& graph, DType dtype)
      : graph_(graph), dtype_(dtype), fixed_(graph) {}

  FusedRoundings Run() {
    std::vector<Node*> softmaxes;
    for (Node& node : graph_.nodes()) {
      if (node.Is("MatMul")) VisitProduct(node);
      if (node.Is("ReduceMean")) VisitMean(node);
      if (node.Is("LayerNormalization")) VisitLayerNorm(node);
      if (node.Is("Softmax")) softmaxes.push_back(&node);
    }
    // These replace the products behind them.
    for (Node* softmax : softmaxes) VisitSoftmax(*softmax);
    RemoveDeadCode(graph_);
    return std::move(found_);
  }

 private:
  // --- linear layers, as NormalizeLinear

  void VisitProduct(const Node& product) {
    const Value* weight = product.in(1);
    Value* y = product.out(0);
    if (!HasRank(*weight, 2) || !WeightBehind(product.in(1))) return;
    Node* add = OnlyReader(graph_, y, "Add");
    if (!add) return;
    Value* bias = OtherOperand(*add, y);
    const bool vector = !bias->producer && bias->dtype == y->dtype &&
                        bias->shape && bias->rank() == 1 && weight->shape &&
                        bias->dim(0) == weight->dim(1);
    if (!vector) return;
    found_.exceptions.inner.insert(y);
    found_.exceptions.narrow.insert(add);
    // As Autocast leaves the bias of a Gemm.
    if (dtype_ == DType::kFloat16) found_.exceptions.inner.insert(bias);
  }

  // --- norms, as FuseNorms

  // Finds √(mean(x²) + number). The square of x stays a float.
  void VisitMean(const Node& mean) {
    const Value* axes = mean.in(1);
    if (!axes || !axes->is_constant() || axes->data.size() != 1) return;
    if (!IsLastAxis(*mean.in(0), ToInts(axes->data)[0])) return;
    Value *square = mean.in(0), *x = SquareOf(square);
    const Node* sum = OnlyReader(graph_, mean.out(0), "Add");
    if (!x || !IsReadOnce(graph_, square) || !sum) return;
    if (!NumberIn(OtherOperand(*sum, mean.out(0)))) return;
    if (!OnlyReader(graph_, sum->out(0), "Sqrt")) return;
    found_.exceptions.exact.insert(square);
    // The norm reads x for its result and for the square: a product reads it
    // twice.
    VisitResidual(x, square->producer->Is("Mul") ? 3 : 2);
  }

  void VisitLayerNorm(const Node& norm) {
    const bool plain = norm.inputs().size() == 3 && norm.in(2) &&
                       norm.Int("stash_type", 1) == 1 &&
                       IsLastAxis(*norm.in(0), norm.Int("axis", -1));
    for (size_t i = 1; i < norm.outputs().size(); ++i) {
      if (norm.out(i)) return;
    }
    if (!plain || norm.in(1)->producer || norm.in(2)->producer) return;
    VisitResidual(norm.in(0), 1);
  }

  // `own`: how often the norm reads x.
  void VisitResidual(Value* x, size_t own) {
    const Node* sum = x->producer;
    if (!sum || !sum->Is("Add") || x->uses.size() <= own) return;
    if (!HaveKnownShape(*sum->in(0), *x)) return;
    if (!HaveKnownShape(*sum->in(1), *x)) return;
    found_.exceptions.exact.insert(x);
  }

  // --- attention, as FuseAttention

  void VisitSoftmax(Node& softmax) {
    Value *x = softmax.in(0), *p = softmax.out(0);
    if (x->dtype != DType::kFloat || !HasRank(*x, 4)) return;
    if (!IsLastAxis(*x, softmax.Int("axis", -1))) return;
    Value* safe = WithoutNaN(graph_, p);
    Node* last = OnlyReader(graph_, safe, "MatMul");
    if (!last || last->in(0) != safe || !HasRank(*last->in(1), 4)) return;
    Node* product = ScoresOf(x);
    if (!product) {
      ++found_.unknown_attention;
      return;
    }
    found_.exceptions.inner.insert(product->out(0));
    KeepFactors(product->in(0), false);
    KeepFactors(product->in(1), true);
    Replace(*last, x, safe != p);
  }

  // The product whose results become the operand of the softmax by factors and
  // masks; null: it is computed in another way.
  Node* ScoresOf(Value* x) const {
    bool scaled = false;
    for (;;) {
      Node* node = x->producer;
      if (!node || !IsReadOnce(graph_, x)) return nullptr;
      if (node->Is("MatMul")) return node;
      const auto factor = FactorOf(*node);
      Value* next = factor ? factor->second : nullptr;
      if (!next && !scaled) next = Unmasked(*node);
      scaled |= factor.has_value();
      if (!next) return nullptr;
      x = next;
    }
  }

  // The operand of an Add or a Where that depends on what is trained.
  Value* Unmasked(const Node& node) const {
    const size_t first = node.Is("Where") ? 1 : 0;
    if (first == 0 && !node.Is("Add")) return nullptr;
    if (first == 1 && !fixed_.Has(node.in(0))) return nullptr;
    for (size_t i : {first, first + 1}) {
      Value* rest = node.in(2 * first + 1 - i);
      if (fixed_.Has(node.in(i)) && !fixed_.Has(rest)) return rest;
    }
    return nullptr;
  }

  // Numbers that multiply an operand of the scores belong to the scores: what
  // they multiply is rounded, and not their product. `turns`: Transposes may
  // lie between.
  void KeepFactors(Value* operand, bool turns) {
    std::vector<Value*> passed;
    while (Node* node = operand->producer) {
      passed.push_back(operand);
      if (!IsReadOnce(graph_, operand)) return;
      if (const auto factor = FactorOf(*node)) {
        found_.exceptions.narrow.insert(node);
        found_.exceptions.inner.insert(passed.begin(), passed.end());
        passed.clear();
        operand = factor->second;
      } else if (turns && IsViewOp(*node) && MovedOperands(*node) == 1) {
        operand = node->in(0);
      } else {
        return;
      }
    }
  }

  // `last`, the product of probabilities and v, becomes the product of their
  // powers and v, divided by the sum of the powers.
  void Replace(Node& last, Value* scores, bool may_hide_all) {
    RoundingExceptions& exceptions = found_.exceptions;
    Builder b(graph_, last.out(0)->name + ".", &last);
    b.set_metadata(last.metadata);
    const Attributes keep = {{"keepdims", int64_t{1}}};
    Value* largest = b.Op("ReduceMax", {scores, b.Ints({-1})}, keep);
    Value* powers = b.Op("Exp", {b.Sub(scores, largest)});
    if (may_hide_all) {
      powers =
          b.Op("Where", {b.Op("IsNaN", {powers}), b.Scalar(0, powers), powers});
    }
    Value* total = b.Op("ReduceSum", {powers, b.Ints({-1})}, keep);
    // The power of the largest score is 1.
    if (may_hide_all) total = b.Op("Max", {total, b.Scalar(1, total)});
    Value* sums = b.Op("MatMul", {powers, last.in(1)});
    Value* y = b.Div(sums, total);
    y->producer->name = last.name;
    exceptions.inner.insert({sums, total});
    if (dtype_ == DType::kFloat16) exceptions.inner.insert(powers);
    exceptions.narrow.insert(y->producer);
    ReplaceWith(graph_, last, y);
  }

  Graph& graph_;
  const DType dtype_;
  const FixedValues fixed_;
  FusedRoundings found_;
};

}  // namespace

FusedRoundings RoundAsFused(Graph& graph, DType dtype) {
  KnowNumbers(graph);
  FuseActivations(graph);
  return RoundingFinder(graph, dtype).Run();
}

}  // namespace onnx_fp8
