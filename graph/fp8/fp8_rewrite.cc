// SPDX-License-Identifier: Apache-2.0
#include "graph/fp8/fp8_rewrite.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "base/check.h"
#include "graph/fp8/operand_copies.h"
#include "graph/fp8/scale_update.h"
#include "graph/views.h"
#include "onnx_fp8/recipe_text.h"

namespace onnx_fp8 {
namespace {

bool FastAccumulation(const Recipe& recipe, GemmRole role) {
  return role == GemmRole::kForward ? recipe.fast_accum_forward
         : role == GemmRole::kDgrad ? recipe.fast_accum_dgrad
                                    : recipe.fast_accum_wgrad;
}

class Rewriter {
 public:
  Rewriter(Graph& graph, const Fp8Spec& spec, Fp8Plan* plan,
           const std::vector<ScaleSlot>* known)
      : graph_(graph),
        spec_(spec),
        plan_(plan),
        known_(known),
        copies_(graph, spec, plan, known) {}

  void Run() {
    for (const GemmDecision& decision : plan_->decisions) {
      bool layer = decision.fp8 && decision.gemm.weight_slot == 1;
      if (layer) AddColumns(*decision.gemm.node);
    }
    for (const GemmDecision* decision : Order()) Rewrite(*decision);
    if (known_) graph_.Sort();
    if (plan_->slots.empty()) return;
    AddScaleState(graph_, spec_.recipe, plan_);
    LabelSlots();
  }

 private:
  void LabelSlots() {
    std::vector<std::string> labels;
    for (const ScaleSlot& slot : plan_->slots) {
      labels.push_back(slot.Label());
    }
    plan_->labels.insert(plan_->labels.begin(), labels.begin(), labels.end());
  }

  // Readers of one value share the slot that is named after the first of them.
  // If slots are known, this first reader makes the copy, even if another
  // reader comes earlier in this graph.
  std::vector<const GemmDecision*> Order() const {
    std::vector<const GemmDecision*> order;
    for (const GemmDecision& decision : plan_->decisions) {
      if (decision.fp8) order.push_back(&decision);
    }
    if (!known_) return order;
    auto slots = [&](const GemmDecision* decision) {
      return std::ranges::count_if(*known_, [&](const ScaleSlot& slot) {
        return slot.fqn == decision->fqn &&
               slot.gemm == Name(decision->gemm.role);
      });
    };
    std::ranges::stable_sort(order, std::greater(), slots);
    return order;
  }

  void Rewrite(const GemmDecision& decision) {
    const GemmInfo& gemm = decision.gemm;
    Node& node = *gemm.node;
    Builder b(graph_, node.out(0)->name + ".", &node);
    b.set_metadata(node.metadata);
    Matrix operands[2] = {PeelTranspose(node.in(0)), PeelTranspose(node.in(1))};
    operands[0].transposed ^= node.Int("transA", 0) != 0;
    operands[1].transposed ^= node.Int("transB", 0) != 0;
    if (gemm.role == GemmRole::kWgrad) {
      for (Matrix& operand : operands) operand.value = Whole(operand.value);
    }
    // W @ x with leading axes on x: (x^T @ W^T)^T.
    bool swapped =
        gemm.weight_slot == 0 && node.in(1)->shape && node.in(1)->rank() > 2;
    if (swapped) {
      Matrix weight = operands[0];
      operands[0] = {b.SwapLast(node.in(1))};
      operands[1] = {weight.value, !weight.transposed};
    }
    Value* y = Product(b, decision, operands, swapped);
    if (swapped) y = b.SwapLast(y);
    y->producer->name = node.name;
    graph_.MoveOutput(node.out(0), y->producer, 0);
    graph_.RemoveNode(&node);
  }

  // The columns of a layer's operand, which are the rows of its weight, are
  // known even if the operand's shape is not.
  void AddColumns(const Node& node) {
    Matrix x = PeelTranspose(node.in(0)), weight = PeelTranspose(node.in(1));
    x.transposed ^= node.Int("transA", 0) != 0;
    weight.transposed ^= node.Int("transB", 0) != 0;
    if (x.transposed || !weight.value->concrete()) return;
    columns_[x.value] = weight.value->dim(weight.transposed ? 1 : 0);
  }

  // In training graphs of ONNX Runtime a wgrad reads the rows of a value: a
  // Reshape. The layer's other products read the value itself. One copy in FP8
  // serves all of them.
  Value* Whole(Value* rows) const {
    const Node* node = rows->producer;
    if (!node || !node->Is("Reshape") || !rows->shape || rows->rank() != 2) {
      return rows;
    }
    auto whole = columns_.find(node->in(0));
    bool same = whole != columns_.end() && whole->second == rows->dim(-1);
    return same ? node->in(0) : rows;
  }

  Value* Product(Builder& b, const GemmDecision& decision,
                 const Matrix (&operands)[2], bool swapped) {
    const Node& node = *decision.gemm.node;
    Quantized copies[2];
    std::vector<Value*> in;
    for (size_t i : {0, 1}) {
      int slot = static_cast<int>(swapped ? 1 - i : i);
      // The sum runs over the first operand's columns and the second one's
      // rows.
      bool along_columns = operands[i].transposed == (i == 1);
      copies[i] =
          copies_.Get(b, decision, operands[i].value, slot, along_columns);
      in.insert(in.end(), {copies[i].q, copies[i].scale});
    }
    float alpha = node.Float("alpha", 1);
    float beta = node.Float("beta", 1);
    Value* c = node.in(2);
    bool vector = c && alpha == 1 && beta == 1 && c->shape && c->rank() == 1 &&
                  c->dim(0) == decision.gemm.n;
    if (vector) in.push_back(c);
    Attributes attributes = {{"transA", int64_t{operands[0].transposed}},
                             {"transB", int64_t{operands[1].transposed}},
                             {"role", std::string(Name(decision.gemm.role))},
                             {"fqn", decision.fqn},
                             {"recipe", RecipeText(decision.recipe)}};
    if (FastAccumulation(decision.recipe, decision.gemm.role)) {
      attributes["fast_accum"] = int64_t{1};
    }
    bool scalars = HasOneScale(copies[0]) && HasOneScale(copies[1]);
    if (!scalars) {
      attributes["a_block_rows"] = copies[0].block_rows;
      attributes["a_block_columns"] = copies[0].block_columns;
      attributes["b_block_rows"] = copies[1].block_rows;
      attributes["b_block_columns"] = copies[1].block_columns;
    }
    std::string op = scalars ? "ScaledMatMul" : "ScaledMatMulBlock";
    Value* y = b.Ours(vector ? op + "Bias" : op, in, std::move(attributes));
    if (alpha != 1) y = b.Mul(y, b.Scalar(alpha, y));
    if (c && !vector) {
      y = b.Add(y, beta == 1 ? c : b.Mul(c, b.Scalar(beta, y)));
    }
    return y;
  }

  // A scale of rank 0.
  static bool HasOneScale(const Quantized& copy) {
    return !copy.q->producer->IsOurs("QuantizeBlock");
  }

  Graph& graph_;
  const Fp8Spec& spec_;
  Fp8Plan* plan_;
  const std::vector<ScaleSlot>* known_;
  OperandCopies copies_;
  // Operands of forward and dgrad.
  std::unordered_map<const Value*, int64_t> columns_;
};

}  // namespace

Fp8Plan Fp8Rewrite(Graph& graph, const Fp8Spec& spec, Value* seed,
                   const std::vector<std::pair<Value*, Value*>>& gradients,
                   const std::vector<ScaleSlot>* known) {
  Fp8Plan plan;
  plan.decisions = DecideGemms(ClassifyGemms(graph, seed, gradients), spec);
  Rewriter(graph, spec, &plan, known).Run();
  return plan;
}

}  // namespace onnx_fp8
