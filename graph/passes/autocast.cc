// SPDX-License-Identifier: Apache-2.0
#include "graph/passes/autocast.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "graph/builder.h"
#include "graph/op_facts.h"

namespace onnx_fp8 {
namespace {

// Constants with more elements than these count as not rounded.
constexpr int64_t kMaxConstant = 4096;

// If autocast runs the op in 16 bits, the number of leading operands to round;
// else 0. The bias of a linear layer or a convolution is one of them in
// bfloat16, as in PyTorch, so that a GPU's library can add it inside the
// product. In float16 the bias stays float32.
size_t NarrowOperands(const Node& node, DType dtype) {
  switch (FactsOf(node).precision) {
    case Precision::kNarrowProduct:
      return dtype == DType::kBFloat16 ? 3 : 2;
    case Precision::kNarrowFirst:
      return 1;
    case Precision::kNarrowThree:
      return 3;
    case Precision::kNarrowAll:
      return node.inputs().size();
    default:
      return 0;
  }
}

bool RunsInFloat(const Node& node) {
  return FactsOf(node).precision == Precision::kFloat ||
         !node.Subgraphs().empty();
}

// Rounded operands have rounded results.
bool KeepsElements(const Node& node) {
  return FactsOf(node).precision == Precision::kKeeps;
}

// Other operands have no say: tables of angles, statistics and factors of an
// activation that PyTorch reads in float without giving a float result.
size_t DecidingOperands(const Node& node) {
  return FactsOf(node).precision == Precision::kFollowsFirst
             ? 1
             : node.inputs().size();
}

class Caster {
 public:
  Caster(Graph& graph, DType dtype, const RoundingExceptions& exceptions)
      : graph_(graph),
        to_(static_cast<int64_t>(dtype)),
        dtype_(dtype),
        exceptions_(exceptions) {}

  void Run() {
    std::vector<Node*> nodes;
    for (Node& node : graph_.nodes()) nodes.push_back(&node);
    for (size_t i = 0; i < nodes.size(); ++i) {
      Visit(*nodes[i], i + 1 < nodes.size() ? nodes[i + 1] : nullptr);
    }
  }

 private:
  void Visit(Node& node, Node* next) {
    const bool narrow = exceptions_.narrow.contains(&node);
    size_t operands =
        narrow ? node.inputs().size() : NarrowOperands(node, dtype_);
    if (operands > 0) {
      for (size_t i = 0; i < std::min(operands, node.inputs().size()); ++i) {
        const Value* x = node.in(i);
        if (!IsReal(x) || exceptions_.inner.contains(x)) continue;
        if (narrow && x->is_constant() && x->data.size() == 1) continue;
        graph_.SetInput(&node, i, Rounded(node, i));
      }
      RoundInnerOperands(node);
      if (!StaysFloat(node.out(0))) RoundResult(node, next);
      return;
    }
    if (RunsInFloat(node) || StaysFloat(node.out(0)) || !AllRounded(node)) {
      return;
    }
    if (!KeepsElements(node)) {
      RoundResult(node, next);
      return;
    }
    for (const Value* out : node.outputs()) {
      if (IsReal(out)) rounded_.insert(out);
    }
  }

  // The probabilities of attention. In float16 gradients of scores would
  // underflow, so there they stay floats.
  void RoundInnerOperands(Node& node) const {
    auto round_to = node.attributes.find("round_to");
    if (round_to == node.attributes.end() || dtype_ != DType::kBFloat16) return;
    round_to->second = Attribute{to_};
  }

  bool StaysFloat(const Value* result) const {
    return exceptions_.exact.contains(result) ||
           exceptions_.inner.contains(result);
  }

  static bool IsReal(const Value* value) {
    return value && value->dtype == DType::kFloat && !value->is_sequence;
  }

  bool IsRounded(const Value* value) {
    if (rounded_.contains(value)) return true;
    if (!value->is_constant() || value->data.size() > kMaxConstant) {
      return false;
    }
    Tensor same = ConvertTo(ConvertTo(value->data, dtype_), DType::kFloat);
    bool equal =
        std::ranges::equal(same.values<float>(), value->data.values<float>());
    if (equal) rounded_.insert(value);
    return equal;
  }

  // Numbers have no say, as in PyTorch, nor has a bias after a product.
  static bool IsNeutral(const Node& node, const Value* value) {
    if (value->is_constant() && value->data.size() == 1) return true;
    return node.Is("Add") && value->role != Role::kNone && value->shape &&
           value->rank() == 1;
  }

  bool AllRounded(const Node& node) {
    bool any = false;
    size_t count = std::min(DecidingOperands(node), node.inputs().size());
    for (size_t i = 0; i < count; ++i) {
      const Value* value = node.in(i);
      if (!IsReal(value)) continue;
      if (rounded_.contains(value) && !value->is_constant()) {
        any = true;
      } else if (KeepsElements(node) ? !IsRounded(value)
                                     : !IsNeutral(node, value)) {
        return false;
      }
    }
    return any;
  }

  // The rounded operand i of the node.
  Value* Rounded(Node& node, size_t i) {
    Value* value = node.in(i);
    if (IsRounded(value)) return value;
    Value*& made = made_[value];
    if (!made) {
      Builder b(graph_, value->name + ".", &node);
      b.set_metadata(node.metadata);
      made = b.Ours("RoundTo", {value}, {{"to", to_}});
      rounded_.insert(made);
    }
    return made;
  }

  // The rounded result keeps the name and all uses of the first result.
  void RoundResult(Node& node, Node* next) {
    Value* y = node.out(0);
    if (!IsReal(y)) return;
    Node* round =
        graph_.AddNode("RoundTo", {y}, {graph_.FreshName(y->name + ".float")},
                       {{"to", to_}}, kDomain, next);
    round->metadata = node.metadata;
    Value* exact = round->out(0);
    exact->dtype = y->dtype;
    exact->shape = y->shape;
    graph_.MoveOutput(y, round, 0);
    graph_.SetInput(round, 0, exact);
    rounded_.insert(y);
  }

  Graph& graph_;
  int64_t to_;
  DType dtype_;
  const RoundingExceptions& exceptions_;
  std::unordered_set<const Value*> rounded_;
  std::unordered_map<const Value*, Value*> made_;
};

}  // namespace

void Autocast(Graph& graph, DType dtype, const RoundingExceptions& exceptions) {
  Caster(graph, dtype, exceptions).Run();
}

}  // namespace onnx_fp8
